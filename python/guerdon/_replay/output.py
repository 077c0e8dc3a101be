"""OUT: the folder into which a replay writes its rows, as a journal of its own.

- Parts are named after the journal's: same run, rank and process, different numbers.
- The part being written is an Arrow stream whose lock its writer holds. It becomes Parquet at the
  end or, where the replay was killed, in the hands of whoever reads the folder next.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from pathlib import Path
from typing import IO, Any

from guerdon._insight.journal.schema import import_arrow
from guerdon._system.output_path import why_no_folder
from guerdon.errors import DataError

__all__ = ["Output"]


class Output:
    """Takes the rows of one chunk after another.

    Raises:
        DataError: The folder is the journal itself, holds rows already, or can't be written.
    """

    def __init__(self, out: str | Path, journal: str | Path) -> None:
        self._folder = Path(out)
        if self._folder.suffix.lower() in (".jsonl", ".ndjson", ".json", ".csv", ".parquet"):
            raise DataError(
                f"{str(out)!r}: the rows go into a folder, as a journal of their own; read_journal reads them."
            )
        why = why_no_folder(self._folder)
        if why is not None:
            raise DataError(f"{str(out)!r} can't be written: {why}.")
        if self._folder.exists() and self._folder.resolve() == Path(journal).resolve():
            raise DataError(f"{str(out)!r} is the journal itself: choose another folder for the new rows.")
        if self._folder.exists() and any(path.suffix in (".parquet", ".arrows") for path in self._folder.iterdir()):
            raise DataError(f"{str(out)!r} holds rows already: choose another folder.")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{str(out)!r} can't be written: {error.strerror or error}.") from None
        self._numbers: Counter[str] = Counter()
        self._part: tuple[str, Any] | None = None
        self._file: IO[bytes] | None = None
        self._stream: Any = None

    def write(self, writer: str, rows: Any) -> None:
        """Append a record batch of one writer's rows."""
        if self._part != (writer, rows.schema):
            self._end_part()
            self._part = writer, rows.schema
            self._file = (self._folder / f"{writer}-{self._numbers[writer]:05}.arrows").open("xb")
            self._numbers[writer] += 1
            fcntl.flock(self._file, fcntl.LOCK_EX)
            arrow = import_arrow()
            options = arrow.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
            self._stream = arrow.ipc.new_stream(self._file, rows.schema, options=options)
        assert self._file is not None
        self._stream.write_batch(rows)
        self._file.flush()

    def close(self) -> None:
        """Complete it: what was written becomes Parquet."""
        from guerdon._native import recover_journal

        self._end_part()
        recover_journal(str(self._folder))

    def _end_part(self) -> None:
        if self._file is not None:
            self._stream.close()
            self._file.close()
            self._file = None
