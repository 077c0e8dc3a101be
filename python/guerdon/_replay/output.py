"""OUT: where a replay writes its rows; a folder is a journal of its own, ``.jsonl`` JSON lines.

- What was written stays, whatever ends the replay: a chunk is appended as a whole and flushed.
- A folder's parts are named after the journal's: same run, rank and process, numbers of their own.
  The part being written is an Arrow stream whose lock its writer holds; it becomes Parquet when it
  is full, at the end, or in the hands of the replay that resumes.
- A row that is there is never written again (`done`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Protocol

from guerdon._insight.journal.part_files import NoRows, open_part
from guerdon._insight.journal.parts import find_parts
from guerdon._insight.journal.schema import import_arrow, plain_type
from guerdon._system.output_path import why_no_file, why_no_folder
from guerdon.errors import DataError

__all__ = ["Output", "check_output", "open_output", "written_rows"]

_PART_BYTES: Final = 256 << 20
_LINES: Final = (".jsonl", ".ndjson")


class Output(Protocol):
    """Takes the rows of one chunk after another."""

    def write(self, writer: str, rows: Any) -> None:
        """Append a record batch of one writer's rows."""

    def close(self) -> None: ...


def check_output(out: str | Path, journal: str | Path, *, resume: bool) -> None:
    """Refuse an output that can't be one.

    Args:
        resume: Go on with what is there; else nothing may be.

    Raises:
        DataError: It is the journal itself, is there already, or can't be written or resumed.
    """
    path = Path(out)
    lines = path.suffix.lower() in _LINES
    if not lines and path.suffix.lower() in (".parquet", ".pq", ".json", ".csv"):
        raise DataError(
            f"{str(out)!r}: the rows go into a folder, as a journal of their own, or into a .jsonl file: a replay that was "
            "interrupted can go on with those alone."
        )
    why = why_no_file(path) if lines else why_no_folder(path)
    if why is not None:
        raise DataError(f"{str(out)!r} can't be written: {why}.")
    if path.exists() and Path(journal).exists() and path.resolve() == Path(journal).resolve():
        raise DataError(f"{str(out)!r} is the journal itself: choose another folder or file for the new rows.")
    there = path.exists() and (path.stat().st_size > 0 if path.is_file() else any(_parts(path)))
    if there and not resume:
        raise DataError(
            f"{str(out)!r} holds rows already. Go on with them, --resume (resume=True), or choose another name."
        )


def open_output(out: str | Path) -> Output:
    """The output named `out`, behind what is there.

    Raises:
        DataError: It is written by another replay, or can't be written.
    """
    path = Path(out)
    lines = path.suffix.lower() in _LINES
    try:
        return _JsonLines(path) if lines else _Folder(path)
    except OSError as error:
        raise DataError(f"{str(out)!r} can't be written: {error.strerror or error}.") from None


def written_rows(out: str | Path, columns: list[str]) -> Iterator[tuple[str, Any]]:
    """Writer and rows of what an earlier replay wrote, as record batches; call it before
    `open_output`, which also mends a last line that was cut off."""
    path = Path(out)
    if not path.exists():
        return
    if path.is_dir():
        journal, types = find_parts(path, recover=False), {name: plain_type(name) for name in columns}
        journal.check_whole()  # what is not read would be scored again
        for part in journal.parts:
            for _, batch in part.batches(columns, 1 << 14, types=types):
                yield part.writer, batch
        journal.check_whole()
        return
    arrow = import_arrow()
    with path.open("rb") as file:
        while lines := list(islice(file, 4096)):
            by_writer: dict[str, list[dict[str, Any]]] = {}
            try:
                for row in map(json.loads, (line for line in lines if line.endswith(b"\n"))):
                    by_writer.setdefault(row["writer"], []).append({name: row[name] for name in columns})
                for writer, rows in by_writer.items():
                    yield writer, arrow.RecordBatch.from_pylist(rows)
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{str(out)!r} holds a line that no replay wrote: choose another file.") from None


def _parts(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.suffix in (".parquet", ".arrows") and path.stat().st_size)


_LINE_START: Final = b'{"writer": '
"""How each line of a ``.jsonl`` begins."""


class _JsonLines:
    """One JSON object a row, keys as the columns of a journal, and ``writer``."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab")
        _lock(self._file, path)
        self._cut_torn_line(path)

    def _cut_torn_line(self, path: Path) -> None:
        """Removes what stands behind the last whole line."""
        with path.open("rb") as file:
            end = path.stat().st_size
            while end:
                start = max(0, end - (1 << 16))
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            file.seek(end)
            torn = file.read(len(_LINE_START))
        if not torn:
            return
        # With whole lines, which were checked, it is a replay's.
        if not end and not _LINE_START.startswith(torn):
            self._file.close()
            raise DataError(f"{str(path)!r} ends with a line that no replay wrote: choose another file.")
        self._file.truncate(end)

    def write(self, writer: str, rows: Any) -> None:
        lines = []
        for row in rows.to_pylist():
            row["submitted"] = row["submitted"].isoformat()
            lines.append(json.dumps({"writer": writer, **row}, ensure_ascii=False) + "\n")
        self._file.write("".join(lines).encode())
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Folder:
    """A journal."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._arrow = import_arrow()
        self._numbers: dict[str, int] = {}
        self._open: _OpenPart | None = None
        for path in sorted(folder.glob("*.arrows")):
            self._finish_left(path)
        for part in find_parts(folder, recover=False).parts:
            self._numbers[part.writer] = max(self._numbers.get(part.writer, 0), part.number + 1)

    def write(self, writer: str, rows: Any) -> None:
        part = self._open
        if part is not None and (part.writer != writer or part.schema != rows.schema or part.size > _PART_BYTES):
            self._close_part()
            part = None
        if part is None:
            number = self._numbers.get(writer, 0)
            self._numbers[writer] = number + 1
            path = self._folder / f"{writer}-{number:05}.arrows"
            part = self._open = _OpenPart(self._arrow, path, writer, rows.schema)
        part.write(rows)

    def close(self) -> None:
        self._close_part()

    def _close_part(self) -> None:
        part, self._open = self._open, None
        if part is not None:
            part.close_stream()
            _to_parquet(self._arrow, part.path)
            part.unlock()

    def _finish_left(self, path: Path) -> None:
        """Makes Parquet of a stream that a replay left which was killed."""
        with path.open("rb") as file:
            _lock(file, path)
            if path.stat().st_size and not path.with_suffix(".parquet").exists():
                _to_parquet(self._arrow, path)
            path.unlink(missing_ok=True)


class _OpenPart:
    """The part that is being written."""

    def __init__(self, arrow: Any, path: Path, writer: str, schema: Any) -> None:
        self.path = path
        self.writer = writer
        self.schema = schema
        self._file: IO[bytes] = path.open("wb")
        _lock(self._file, path)
        options = arrow.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        self._stream = arrow.ipc.new_stream(self._file, schema, options=options)

    @property
    def size(self) -> int:
        return self._file.tell()

    def write(self, rows: Any) -> None:
        self._stream.write_batch(rows)
        self._file.flush()

    def close_stream(self) -> None:
        self._stream.close()
        self._file.flush()

    def unlock(self) -> None:
        self._file.close()


def _to_parquet(arrow: Any, path: Path) -> None:
    """Writes a stream as Parquet, under another name first, and removes it."""
    try:
        reader = open_part(path)
    except NoRows:  # killed before its first row
        path.unlink()
        return
    schema = reader.schema
    target = path.with_suffix(".parquet")
    partial = target.with_suffix(".parquet.partial")
    try:
        with arrow.parquet.ParquetWriter(partial, schema, compression="zstd") as parquet:
            for batch in _whole(reader.batches(schema.names, 1 << 16)):
                parquet.write_batch(batch)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
        path.unlink()
    finally:
        reader.close()
        partial.unlink(missing_ok=True)


def _whole(batches: Iterator[Any]) -> Iterator[Any]:
    """Those in front of a message that was cut off."""
    with contextlib.suppress(EOFError, OSError, ValueError):
        yield from batches


def _lock(file: IO[bytes], path: Path) -> None:
    """Holds the lock of a file that is written, as long as it is open.

    Raises:
        DataError: Another process holds it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DataError(f"{path} is being written by another process: wait for it, or choose another name.") from None
