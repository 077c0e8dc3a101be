"""The second pass over a journal: its samples in chunks of whole groups, ready to be scored.

- A chunk holds samples of one writer and one group size, in the order of batch and sample.
- Groups that lack samples come in separate chunks, whose `whole` is False.
- Memory holds the batches that are open at once, and one chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guerdon._insight.journal.schema import COLUMNS, import_arrow, plain_type, text_column
from guerdon._replay.survey import BatchKey, Survey, spans
from guerdon.errors import DataError
from guerdon.results.status import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ABSENT", "Cells", "Chunk", "chunks", "failed"]

ABSENT: Final = 255
"""The status of a cell of which the journal has no row."""

_ROWS: Final = 4096

_LABELS: Final = [status.label for status in Status]
_PART: Final = "part"
"""The column of a chunk that says in which part each row was."""


@dataclass(eq=False)
class Cells:
    """One function's outcomes on the samples of a chunk, ``[S]`` each.

    Attributes:
        reward: float32, NaN where there is none.
        status: uint8, `ABSENT` where there is no row.
        weight: float32.
        row: The row of the chunk's table; -1 without one.
    """

    reward: NDArray[np.float32]
    status: NDArray[np.uint8]
    weight: NDArray[np.float32]
    row: NDArray[np.int64]

    @classmethod
    def empty(cls, samples: int) -> Cells:
        return cls(
            np.full(samples, np.nan, np.float32),
            np.full(samples, ABSENT, np.uint8),
            np.full(samples, np.nan, np.float32),
            np.full(samples, -1, np.int64),
        )

    @property
    def there(self) -> NDArray[np.bool_]:
        return np.asarray(self.status != ABSENT)


def failed(status: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Returns a mask of the statuses of failures."""
    return np.asarray((status >= Status.TIMEOUT) & (status <= Status.CANCELLED))


class Chunk:
    """Samples of a journal.

    Args:
        table: Their rows, those of a sample together.
        starts: The first row of each sample, and the number of rows.
        size: Samples of a group; 1 where `whole` is False.
        whole: Whether all groups are.
        survey: Of the journal.
    """

    def __init__(self, table: Any, starts: NDArray[np.int64], size: int, *, whole: bool, survey: Survey) -> None:
        self.table = table
        self.size = size
        self.whole = whole
        self._starts = starts
        self._survey = survey
        first = starts[:-1]
        self.batch: NDArray[np.uint64] = _numbers(table, "batch")[first]
        self.sample: NDArray[np.int64] = _numbers(table, "sample")[first].astype(np.int64)
        self.group: NDArray[np.int64] = _numbers(table, "group")[first].astype(np.int64)
        self.repeated = 0

    def __len__(self) -> int:
        return len(self._starts) - 1

    @cached_property
    def cells(self) -> dict[str, Cells]:
        """Returns the cells by function of the journal; those without a row here are left out."""
        found: dict[str, Cells] = {}
        rows = self.table.num_rows
        codes = _codes(self.table, "function", self._survey.functions)
        sample = np.repeat(np.arange(len(self)), np.diff(self._starts))
        reward, weight = (np.asarray(_numbers(self.table, name), np.float32) for name in ("reward", "weight"))
        status = _codes(self.table, "status", _LABELS)
        if status.size and status.min() < 0:
            row = int(np.flatnonzero(status < 0)[0])
            raise DataError(
                f"the journal has a status {self.table['status'][row].as_py()!r}, which is none of Guerdon's."
            )
        for code, name in enumerate(self._survey.functions):
            mine = np.flatnonzero(codes == code)
            if not mine.size:
                continue
            mine = mine[::-1]  # of two rows of a cell the first one stays
            cells = found[name] = Cells.empty(len(self))
            cells.reward[sample[mine]] = reward[mine]
            cells.status[sample[mine]] = status[mine].astype(np.uint8)
            cells.weight[sample[mine]] = weight[mine]
            cells.row[sample[mine]] = mine
        self.repeated = rows - sum(int(cells.there.sum()) for cells in found.values())
        return found

    @cached_property
    def is_summed(self) -> NDArray[np.bool_]:
        """Samples whose total was that of the other functions where one had failed."""
        parts = self._survey.parts
        summed = [place for place in self._parts if parts[place].facts.is_summed]
        return np.isin(self._part_of_row[self.first_rows], summed)

    def has(self, name: str) -> bool:
        """Returns whether there is the text column `name`."""
        return any(name in self._kinds(part) for part in self._parts)

    def values(self, name: str) -> list[Any]:
        """Returns the values of the column `name` that the functions got, one a sample; None where
        the journal has none."""
        texts, places = self._texts(name)
        if all(self._kinds(part).get(name, "text") == "text" for part in self._parts):
            return texts
        parts = self._part_of_row[places].tolist()
        return [self._decoded(name, text, part) for text, part in zip(texts, parts, strict=True)]

    def cut(self, samples: NDArray[np.int64]) -> Chunk:
        """A chunk of some of the samples, by place."""
        counts = np.diff(self._starts)[samples]
        rows = np.concatenate([np.arange(self._starts[s], self._starts[s + 1]) for s in samples])
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Chunk(self.table.take(rows), starts, self.size, whole=self.whole, survey=self._survey)

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """The first row of each sample."""
        return self._starts[:-1]

    @cached_property
    def _part_of_row(self) -> NDArray[np.int64]:
        return np.asarray(_numbers(self.table, _PART), np.int64)

    @cached_property
    def _parts(self) -> list[int]:
        return sorted(set(self._part_of_row.tolist()))

    def _kinds(self, part: int) -> dict[str, str]:
        return self._survey.kinds[part]

    def _decoded(self, name: str, text: str | None, part: int) -> Any:
        if text is None or self._kinds(part).get(name, "text") == "text":
            return text
        try:
            return json.loads(text)
        except ValueError as error:
            raise DataError(
                f"{self._survey.parts[part].path} says that its column {text_column(name)!r} is JSON, and a value is not: "
                f"{error}."
            ) from None

    def _texts(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """Returns for each sample the first text that is not null, and its row; any without one."""
        values = self.table[text_column(name)]
        places = np.arange(len(values))
        filled = np.where(values.is_valid().to_numpy(), places, len(values))
        first = np.minimum.reduceat(filled, self._starts[:-1]) if len(values) else filled
        rows = np.where(first < len(values), first, self._starts[:-1])
        return values.take(import_arrow().array(rows)).to_pylist(), np.asarray(rows)


def chunks(survey: Survey, texts: Iterable[str], size: int, *, batches: bool) -> Iterator[Chunk]:
    """The samples that count, in the order of the journal.

    Args:
        texts: Names of the text columns to read.
        size: Samples of a chunk, rounded up to whole groups.
        batches: Each chunk is one whole batch.
    """
    columns = (*COLUMNS, *(text_column(name) for name in texts))
    writers: dict[str, list[int]] = {}
    for place, part in enumerate(survey.parts):
        if part.limit:
            writers.setdefault(part.writer, []).append(place)
    for writer, places in writers.items():
        ready = _Ready(survey, size, batches=batches)
        open_batches: dict[BatchKey, list[Any]] = {}
        left = dict(survey.batches)
        for key, rows in _slices(survey, writer, places, columns):
            open_batches.setdefault(key, []).append(rows)
            left[key] -= rows.num_rows
            if not left[key]:
                yield from ready.add(key, open_batches.pop(key))
        for key, slices in open_batches.items():  # a part that changed between the two passes
            yield from ready.add(key, slices)
        yield from ready.flush()


class _Ready:
    """Complete batches of one writer, until they fill a chunk."""

    def __init__(self, survey: Survey, size: int, *, batches: bool) -> None:
        self._survey = survey
        self._size = size
        self._batches = batches
        self._slices: list[Any] = []
        self._samples = 0
        self._of: tuple[str, int, int] = ("", 0, 0)

    def add(self, key: BatchKey, slices: list[Any]) -> Iterator[Chunk]:
        """Adds rows of one batch, and gives the chunks that are full."""
        samples = np.concatenate([_numbers(each, "sample") for each in slices]).astype(np.int64)
        groups = np.concatenate([_numbers(each, "group") for each in slices]).astype(np.int64)
        # The last sample of a group gives the size, any other less.
        of = (key[1], key[2], int((samples // (groups + 1)).max()) + 1)
        if self._slices and (self._batches or of != self._of):
            yield from self.flush()
        self._of = of
        self._slices += slices
        self._samples += len(np.unique(samples))
        if self._batches or self._samples >= self._size:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk]:
        """The chunks of all rows so far."""
        if not self._slices:
            return
        size = self._of[2]
        table, starts = _by_sample(import_arrow().Table.from_batches(self._slices))
        self._slices, self._samples = [], 0
        chunk = Chunk(table, starts, size, whole=True, survey=self._survey)
        whole = _whole(chunk, size)
        if self._batches and not whole.all():
            whole[:] = False  # a function of the batch can't see it all
        places = np.flatnonzero(whole)
        step = len(places) if self._batches else -(-self._size // size) * size
        if len(places) == len(chunk) <= step:
            yield chunk
        else:
            for first in range(0, len(places), max(step, 1)):
                yield chunk.cut(places[first : first + step])
        rest = np.flatnonzero(~whole)
        for first in range(0, len(rest), self._size):
            part = chunk.cut(rest[first : first + self._size])
            part.whole, part.size = False, 1
            yield part


def _slices(
    survey: Survey, writer: str, places: Sequence[int], columns: Sequence[str]
) -> Iterator[tuple[BatchKey, Any]]:
    """The rows of a writer that count, by stretches of one batch."""
    arrow = import_arrow()
    types = {name: plain_type(name) for name in columns}
    for place in places:
        for _, read in survey.parts[place].batches(columns, _ROWS, types=types, among=survey.selection.filter()):
            rows = survey.selection.rows(read)
            if not rows.num_rows:
                continue
            mark = arrow.array(np.full(rows.num_rows, place, np.int32))
            marked = arrow.RecordBatch.from_arrays([*rows.columns, mark], names=[*columns, _PART])
            for run, rank, number, start, end in spans(rows):
                yield (writer, run, rank, number), marked.slice(start, end - start)


def _by_sample(table: Any) -> tuple[Any, NDArray[np.int64]]:
    """The table in the order of batch and sample, and where each sample begins."""
    batch, sample = _numbers(table, "batch"), _numbers(table, "sample")
    order = np.lexsort((sample, batch))
    if not np.array_equal(order, np.arange(len(order))):
        table, batch, sample = table.take(order), batch[order], sample[order]
    changes = (batch[1:] != batch[:-1]) | (sample[1:] != sample[:-1])
    return table, np.concatenate([[0], np.flatnonzero(changes) + 1, [len(batch)]]).astype(np.int64)


def _whole(chunk: Chunk, size: int) -> NDArray[np.bool_]:
    """Returns for each sample whether its group has all of its samples, in their places."""
    right = chunk.group == chunk.sample // size
    keys = np.stack([chunk.batch.astype(np.int64), chunk.group])
    changes = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    ids = np.concatenate([[0], np.cumsum(changes)])
    counts = np.bincount(ids)
    wrong = np.bincount(ids, weights=~right)
    return np.asarray(((counts == size) & (wrong == 0))[ids])


def _numbers(table: Any, name: str) -> Any:
    return table[name].to_numpy()


def _codes(table: Any, name: str, known: Sequence[str]) -> NDArray[np.int64]:
    """The place of each value among those known; -1 for one that is not."""
    arrow = import_arrow()
    places = arrow.compute.index_in(table[name], value_set=arrow.array(known, arrow.string()))
    return np.asarray(places.fill_null(-1).to_numpy(), np.int64)
