"""The two forms of a part: the Parquet file that is complete, and the Arrow stream that grows.

Every complete message of a stream is read, also if its writer was killed at the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from guerdon._insight.journal.schema import import_arrow

__all__ = ["NoRows", "open_part"]

_MARK: Final = b"\xff" * 4
"""First bytes of each message of a stream."""


class NoRows(Exception):
    """A stream so young that it has no schema yet."""


def open_part(path: Path) -> ParquetPart | StreamPart:
    """The part, whose stream may have become a file since it was found.

    Raises:
        NoRows: It has nothing in it yet.
        OSError, ValueError: It can't be read.
    """
    if path.suffix == ".parquet":
        return ParquetPart(path)
    try:
        return StreamPart(path)
    except FileNotFoundError:
        return ParquetPart(path.with_suffix(".parquet"))


class ParquetPart:
    """A part that is complete."""

    def __init__(self, path: Path) -> None:
        self._arrow = import_arrow()
        self._path = path
        self._file = self._arrow.parquet.ParquetFile(path)
        self.schema = self._file.schema_arrow

    def batches(
        self, columns: Sequence[str], size: int, *, among: Any = None, dictionaries: Sequence[str] = ()
    ) -> Iterator[Any | int]:
        """Its rows; the number of rows replaces those that `among` leaves out.

        Args:
            columns: Names that it has.
            size: Rows of a record batch, at most.
            among: Which row groups may hold what is wanted: places in ascending order, or a filter.
            dictionaries: Columns of strings that are to come as dictionaries, if that is cheap.
        """
        file = self._file
        if dictionaries:
            file = self._arrow.parquet.ParquetFile(self._path, read_dictionary=list(dictionaries))
        try:
            if among is None:
                yield from file.iter_batches(size, columns=list(columns))
                return
            hit = self._row_groups(among)
            for group in range(file.num_row_groups):
                if group in hit:
                    yield from file.iter_batches(size, row_groups=[group], columns=list(columns))
                else:
                    yield file.metadata.row_group(group).num_rows
        finally:
            if dictionaries:
                file.close()

    def _row_groups(self, among: Any) -> set[int]:
        """The row groups that hold one of these places, or may hold rows of this filter."""
        if isinstance(among, self._arrow.compute.Expression):
            made = self._arrow.dataset.ParquetFileFormat().make_fragment(
                str(self._path), filesystem=self._arrow.fs.LocalFileSystem()
            )
            try:
                return {group.id for group in made.subset(among, schema=self.schema).row_groups}
            except (NotImplementedError, ValueError):  # of a column that this part lacks
                return set(range(self._file.num_row_groups))
        found, first = set(), 0
        for group in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            if any(first <= place < first + count for place in among):
                found.add(group)
            first += count
        return found

    def filled(self, columns: Sequence[str]) -> set[str]:
        """The columns that hold anything, by the statistics of the file."""
        metadata = self._file.metadata
        if not metadata.num_row_groups:
            return set()
        places = {metadata.row_group(0).column(i).path_in_schema: i for i in range(metadata.num_columns)}
        return {name for name in columns if name in places and self._is_filled(places[name])}

    def _is_filled(self, place: int) -> bool:
        for number in range(self._file.metadata.num_row_groups):
            group = self._file.metadata.row_group(number)
            statistics = group.column(place).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count < group.num_rows:
                return True
        return False

    def close(self) -> None:
        self._file.close()


class StreamPart:
    """A part that is not finished: what its writer had flushed."""

    def __init__(self, path: Path) -> None:
        arrow = import_arrow()
        self._file = path.open("rb")
        try:
            self._reader = arrow.ipc.open_stream(self._file)
        except (EOFError, OSError, ValueError):
            self._file.seek(0)
            begins = self._file.read(len(_MARK))
            self._file.close()
            if not _MARK.startswith(begins):
                raise ValueError("it is no Arrow stream") from None
            raise NoRows from None
        self.schema = self._reader.schema

    def batches(
        self, columns: Sequence[str], size: int, *, among: Any = None, dictionaries: Sequence[str] = ()
    ) -> Iterator[Any | int]:
        """As of `ParquetPart`; it has no row groups, and its strings come as they are."""
        for batch in self._reader:
            chosen = batch.select(list(columns))
            for start in range(0, chosen.num_rows, size):
                yield chosen.slice(start, size)

    def filled(self, columns: Sequence[str]) -> set[str]:
        """Reads the whole stream."""
        found: set[str] = set()
        try:
            for batch in self._reader:
                found |= {name for name in columns if batch.column(name).null_count < batch.num_rows}
        except (EOFError, OSError, ValueError):  # where it breaks off
            pass
        return found

    def close(self) -> None:
        self._file.close()
