"""DATA: rows from a JSONL or Parquet file, read twice: once to check all of it, once to score it piece by piece.

- D-1  Nothing is scored before every row was read and checked: a mistake in the last line costs no scoring.
- D-2  Memory holds the rows of the chunk in hand, never the file. What can be read only once (stdin, a pipe) goes into
       a temporary file first.
- D-3  A message about a row names the file and the line (Parquet: the row, from 0).
- D-4  Text comes through unharmed, lone surrogates included.
"""

from __future__ import annotations

import gzip
import json
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from guerdon.cli.exit_codes import UsageError

__all__ = ["JsonLines", "Parquet", "Row", "Source", "import_parquet", "kind_of", "open_source"]


@dataclass(frozen=True)
class Row:
    """One row: where it stands, its fields, and the line that it came as (None where there are no lines)."""

    place: int
    fields: dict[str, Any]
    line: str | None = None


class Source(Protocol):
    """A file of rows."""

    name: str

    def rows(self, *, strict: bool = False) -> Iterator[Row]:
        """Every row, from the beginning; ``strict`` refuses an object that gives one field twice.

        Raises:
            UsageError: A row can't be read.
        """

    def where(self, place: int) -> str:
        """What messages call the row at `place`."""

    def close(self) -> None: ...


def open_source(data: str) -> Source:
    """The rows of the file `data`; ``-`` is JSONL from stdin.

    Raises:
        UsageError: There is no such file, or no reader for it.
    """
    if data == "-":
        return JsonLines(_spooled(sys.stdin.buffer), "stdin")
    path = Path(data)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"DATA {data!r}: {error.strerror}.") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"DATA {data!r} is a folder: give a JSONL or Parquet file.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return Parquet(path)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise UsageError(f"DATA {data!r}: {error.strerror}.") from None
    return JsonLines(opened if stat.S_ISREG(mode) else _spooled(opened), data)


def _spooled(stream: IO[bytes]) -> IO[bytes]:
    """Everything from `stream` in a file that can be read again and goes with us (D-2)."""
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - its reader closes it
    shutil.copyfileobj(stream, spool, 1 << 20)
    return spool


class JsonLines:
    """One JSON object a line, UTF-8, blank lines left out; gzip is recognised by its first bytes."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.name = name
        self._stream = stream
        stream.seek(0)
        self._packed = stream.read(2) == b"\x1f\x8b"

    def rows(self, *, strict: bool = False) -> Iterator[Row]:
        decoder = json.JSONDecoder(object_pairs_hook=_refuse_repeated if strict else None)
        for place, raw in self._lines():
            try:
                line = raw.decode("utf-8-sig" if place == 1 else "utf-8").strip()
                if not line:
                    continue
                fields = decoder.decode(line)
            except UnicodeDecodeError as error:
                hex_byte = f"{raw[error.start]:#04x}"
                raise UsageError(f"{self.where(place)} is not UTF-8: byte {hex_byte} at {error.start + 1}.") from None
            except json.JSONDecodeError as error:
                raise UsageError(f"{self.where(place)} is not JSON: {error.msg} at column {error.colno}.") from None
            except (ValueError, RecursionError) as error:  # a field given twice, a number of 5000 digits
                raise UsageError(f"{self.where(place)} can't be read: {error}.") from None
            if not isinstance(fields, dict):
                hint = " Write each of its elements on a line of its own." if isinstance(fields, list) else ""
                raise UsageError(f"{self.where(place)} is {kind_of(fields)}, not an object.{hint}")
            yield Row(place, fields, line)

    def where(self, place: int) -> str:
        return f"{self.name}, line {place}"

    def close(self) -> None:
        self._stream.close()

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._stream.seek(0)
        lines = gzip.GzipFile(fileobj=self._stream) if self._packed else self._stream
        try:
            yield from enumerate(lines, 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{self.name} can't be unpacked: {error}.") from None


class Parquet:
    """The rows of a Parquet file; needs pyarrow."""

    def __init__(self, path: Path) -> None:
        arrow = import_parquet()
        self.name = str(path)
        try:
            self._file = arrow.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"DATA {str(path)!r} is no Parquet file that can be read: {_sentence(error)}") from None

    def rows(self, *, strict: bool = False) -> Iterator[Row]:
        place = 0
        try:
            for batch in self._file.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    yield Row(place, fields)
                    place += 1
        except (OSError, ValueError) as error:  # pyarrow's own errors are both
            raise UsageError(f"{self.where(place)} or a later one can't be read: {_sentence(error)}") from None

    def where(self, place: int) -> str:
        return f"{self.name}, row {place}"

    def close(self) -> None:
        self._file.close()

    @property
    def schema(self) -> Any:
        """The pyarrow schema."""
        return self._file.schema_arrow


def import_parquet() -> Any:
    """``pyarrow.parquet``.

    Raises:
        UsageError: It isn't installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'pyarrow>=17'.") from None
    return pyarrow.parquet


def kind_of(value: object) -> str:
    """What a value is, in the words of JSON."""
    kinds = {type(None): "null", bool: "true or false", str: "a text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def _sentence(error: Exception) -> str:
    """What a library says, with one full stop at its end."""
    return f"{str(error).rstrip('. ')}."


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it gives the field {twice!r} twice")
    return fields
