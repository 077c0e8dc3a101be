"""DATA: rows of a JSONL, CSV or Parquet file, read twice: once to check them all, once to score
them.

- Every row is read and checked before anything is scored.
- Memory holds the rows of one chunk, never the file. Inputs that can be read only once (stdin, a
  pipe) are copied to a temporary file first.
- A message about a row names the file and the line (Parquet: the row, from 0).
- Text stays as it is, lone surrogates included; all values of CSV are texts.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import stat
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from guerdon._system.extras import pip_install
from guerdon.profile.exit_codes import UsageError

__all__ = [
    "CsvInput",
    "InputFile",
    "InputRow",
    "JsonLinesInput",
    "ParquetInput",
    "json_type",
    "open_input",
]


@dataclass(frozen=True)
class InputRow:
    """One row: its line or row number, its fields, and its line (None for Parquet)."""

    place: int
    fields: dict[str, Any]
    line: str | None = None


class InputFile(ABC):
    """A file of rows, each of which has a line, or is a row, of this number."""

    unit = "line"

    def __init__(self, name: str, opened: Any) -> None:
        self.name = name
        self._opened = opened

    @abstractmethod
    def rows(self, *, strict: bool = False) -> Iterator[InputRow]:
        """Every row, from the beginning; ``strict`` refuses an object that gives one field twice.

        Raises:
            UsageError: A row can't be read.
        """

    def where(self, place: int) -> str:
        """Returns the name of the row at `place` in messages."""
        return f"{self.name}, {self.unit} {place}"

    def close(self) -> None:
        self._opened.close()


def open_input(data: str) -> InputFile:
    """The rows of the file `data`; ``-`` is JSONL from stdin.

    Raises:
        UsageError: There is no such file, or it can't be read.
    """
    if data == "-":
        return JsonLinesInput(_copied_to_file(sys.stdin.buffer), "stdin")
    path = Path(data)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"DATA {data!r}: {error.strerror}.") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"DATA {data!r} is a folder: give a JSONL, CSV or Parquet file.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return ParquetInput(path)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise UsageError(f"DATA {data!r}: {error.strerror}.") from None
    stream = opened if stat.S_ISREG(mode) else _copied_to_file(opened)
    separator = _SEPARATORS.get(path.suffix.lower())
    return JsonLinesInput(stream, data) if separator is None else CsvInput(stream, data, separator)


def _copied_to_file(stream: IO[bytes]) -> IO[bytes]:
    """A temporary file with everything from `stream`, which can be read again."""
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - its reader closes it
    shutil.copyfileobj(stream, spool, 1 << 20)
    return spool


class JsonLinesInput(InputFile):
    """One JSON object a line, UTF-8; blank lines are skipped, gzip is recognised."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        super().__init__(name, stream)
        stream.seek(0)
        self._gzipped = stream.read(2) == b"\x1f\x8b"

    def rows(self, *, strict: bool = False) -> Iterator[InputRow]:
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
            # a repeated field, a number of 5000 digits
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{self.where(place)} can't be read: {error}.") from None
            if not isinstance(fields, dict):
                hint = " Write each element on a line of its own." if isinstance(fields, list) else ""
                raise UsageError(f"{self.where(place)} is {json_type(fields)}, not an object.{hint}")
            yield InputRow(place, fields, line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._opened.seek(0)
        lines = gzip.GzipFile(fileobj=self._opened) if self._gzipped else self._opened
        try:
            yield from enumerate(lines, 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{self.name} can't be unpacked: {error}.") from None


_SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}


class CsvInput(InputFile):
    """The rows of a CSV file in UTF-8, whose first line names the columns."""

    def __init__(self, stream: IO[bytes], name: str, separator: str) -> None:
        super().__init__(name, stream)
        self._separator = separator

    def rows(self, *, strict: bool = False) -> Iterator[InputRow]:
        self._opened.seek(0)
        text = io.TextIOWrapper(self._opened, "utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=self._separator, strict=True)
        try:
            names = next(reader, [])
            if len(set(names)) < len(names) or not all(names):
                raise UsageError(f"{self.where(1)} has to name each column once: it has {', '.join(map(repr, names))}.")
            for values in reader:
                if values and len(values) != len(names):
                    raise UsageError(
                        f"{self.where(reader.line_num)} has {len(values)} values for {len(names)} columns. A value with a comma or "
                        "a line break stands in double quotes."
                    )
                if values:
                    fields = dict(zip(names, values, strict=True))
                    yield InputRow(reader.line_num, fields, json.dumps(fields, ensure_ascii=False))
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{self.where(reader.line_num + 1)} can't be read as CSV: {_sentence(error)}") from None
        finally:
            text.detach()


class ParquetInput(InputFile):
    """The rows of a Parquet file; needs pyarrow."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        arrow = _import_parquet()
        try:
            super().__init__(str(path), arrow.ParquetFile(path))
        except (OSError, ValueError) as error:
            raise UsageError(f"DATA {str(path)!r} can't be read as Parquet: {_sentence(error)}") from None

    def rows(self, *, strict: bool = False) -> Iterator[InputRow]:
        place = 0
        try:
            for batch in self._opened.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    yield InputRow(place, fields)
                    place += 1
        except (OSError, ValueError) as error:  # pyarrow's own errors are both
            raise UsageError(f"{self.where(place)} or a later one can't be read: {_sentence(error)}") from None


def _import_parquet() -> Any:
    """``pyarrow.parquet``.

    Raises:
        UsageError: It isn't installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"Parquet needs pyarrow: {pip_install('parquet')}.") from None
    return pyarrow.parquet


def json_type(value: object) -> str:
    """The JSON type of a value, for messages."""
    kinds = {type(None): "null", bool: "true or false", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def _sentence(error: Exception) -> str:
    """A library's message with one full stop at its end."""
    return f"{str(error).rstrip('. ')}."


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} is there twice")
    return fields
