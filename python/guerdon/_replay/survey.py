"""The first pass over a journal: which batches it has, how large each is, and which columns.

Only the columns that say which cell a row is are read. Of each batch a few numbers are kept, never
a row; the second pass (`chunks`) knows by them when it has seen all of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from guerdon._insight.journal.parts import JournalParts, Part
from guerdon._insight.journal.schema import KEYS, plain_type
from guerdon._insight.journal.selection import Selection
from guerdon.errors import DataError

__all__ = ["BatchSummary", "Survey", "spans", "survey"]

_ROWS = 1 << 16
_MOST_FUNCTIONS = 63
"""That a bit of a whole number can stand for each."""

_COLUMNS = (*KEYS, "version")


@dataclass
class BatchSummary:
    """One batch of a journal.

    Attributes:
        rows: How many it has.
        low: The least group size that its samples allow.
        high: The largest; None where nothing says.
        functions: A bit for each function that scored it, by its place in `Survey.functions`.
        size: Its group size; 0 where its rows contradict each other.
    """

    rows: int = 0
    low: int = 1
    high: int | None = None
    functions: int = 0
    size: int = 0

    @property
    def samples(self) -> int:
        """How many, as far as all functions scored all of them."""
        return self.rows // max(1, bin(self.functions).count("1"))

    def add(self, rows: int, low: int, high: int | None, functions: int) -> None:
        self.rows += rows
        self.low = max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(high, self.high)
        self.functions |= functions


BatchKey = tuple[str, str, int, int]
"""Writer, run, rank and number of a batch."""


@dataclass
class Survey:
    """What a journal holds of the rows that count.

    Attributes:
        kinds: Of each part, the text columns that hold anything in it: ``"text"`` or ``"json"`` by
            the user's name.
        functions: Names of the functions that scored, in the order of their first rows.
        versions: Of each function, how many rows by version.
        runs: Rows by run.
        steps: The first and the last step; None without any.
        batches: By writer, run, rank and number.
    """

    parts: list[Part]
    selection: Selection
    kinds: list[dict[str, str]] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    versions: dict[str, Counter[str]] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    steps: tuple[int, int] | None = None
    batches: dict[BatchKey, BatchSummary] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.runs.values())

    @property
    def samples(self) -> int:
        return sum(batch.samples for batch in self.batches.values())

    def available(self) -> dict[str, list[Part]]:
        """By the name of each text column, the parts that have it."""
        names: dict[str, list[Part]] = {}
        for part, kinds in zip(self.parts, self.kinds, strict=True):
            for name in kinds:
                names.setdefault(name, []).append(part)
        return names

    def parts_with_rows(self) -> list[Part]:
        return [part for part in self.parts if part.limit]


def survey(journal: JournalParts, selection: Selection, num_generations: int | None = None) -> Survey:
    """Read which rows a journal has.

    Args:
        num_generations: The group size, where the user says it.

    Raises:
        DataError: There is no part, no row counts, or a row is of no known sample.
    """
    journal.check_some()
    found = Survey(journal.parts, selection)
    everywhere: set[str] = set()
    steps: tuple[int, int] | None = None
    types = {name: plain_type(name) for name in _COLUMNS}
    for part in found.parts:
        rows = chosen = 0
        for first, batch in part.batches(_COLUMNS, _ROWS, types=types):
            rows = first + batch.num_rows
            _check_keys(part, batch)
            everywhere.update(batch.column("run").unique().to_pylist())
            steps = _wider(steps, batch)
            counted = selection.rows(batch)
            chosen += counted.num_rows
            _count(found, part.writer, counted)
        part.limit = rows if chosen else 0  # nothing else of it is read again
        found.kinds.append({name: part.kinds[name] for name in part.filled_texts()} if chosen else {})
    if not found.batches:
        if not everywhere:
            raise DataError(f"{journal.folder} has parts, but no rows in them.{journal.described_notes()}")
        named = ", ".join(sorted(everywhere))
        known = "" if steps is None else f" Its steps: {steps[0]} to {steps[1]}."
        raise DataError(f"no row is of these runs and steps. The journal's runs: {named}.{known}")
    _decide_sizes(found.batches, num_generations)
    return found


def _check_keys(part: Part, batch: Any) -> None:
    for name in KEYS:
        if name != "step" and batch.column(name).null_count:
            raise DataError(f"{part.path.name} has rows without a {name}, so nobody knows of which samples they are.")


def spans(batch: Any) -> Iterator[tuple[str, int, int, int, int]]:
    """Run, rank and number of each stretch of rows of one batch, with its first row and its end."""
    numbers = batch.column("batch").to_numpy(zero_copy_only=False)
    ranks = batch.column("rank").to_numpy(zero_copy_only=False)
    runs = batch.column("run").dictionary_encode()
    codes = runs.indices.to_numpy(zero_copy_only=False)
    changes = (numbers[1:] != numbers[:-1]) | (ranks[1:] != ranks[:-1]) | (codes[1:] != codes[:-1])
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    names = runs.dictionary.to_pylist()
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield names[codes[start]], int(ranks[start]), int(numbers[start]), start, end


def _count(found: Survey, writer: str, batch: Any) -> None:
    if not batch.num_rows:
        return
    _count_names(found, batch)
    codes = _codes(batch.column("function"), found.functions)
    group = batch.column("group").to_numpy(zero_copy_only=False).astype(np.int64)
    sample = batch.column("sample").to_numpy(zero_copy_only=False).astype(np.int64)
    low = sample // (group + 1) + 1
    high = np.where(group > 0, sample // np.maximum(group, 1), np.iinfo(np.int64).max)
    bits = np.left_shift(np.uint64(1), np.minimum(codes, _MOST_FUNCTIONS).astype(np.uint64))
    stretches = list(spans(batch))
    starts = [start for *_, start, _ in stretches]
    lows = np.maximum.reduceat(low, starts).tolist()
    highs = np.minimum.reduceat(high, starts).tolist()
    masks = np.bitwise_or.reduceat(bits, starts).tolist()
    for (run, rank, number, start, end), least, most, mask in zip(stretches, lows, highs, masks, strict=True):
        known = found.batches.get((writer, run, rank, number))
        if known is None:
            known = found.batches[writer, run, rank, number] = BatchSummary()
        known.add(end - start, least, most if most < np.iinfo(np.int64).max else None, mask)


def _wider(known: tuple[int, int] | None, batch: Any) -> tuple[int, int] | None:
    """The first and the last step, with those of the rows."""
    steps = batch.column("step")
    if steps.null_count == len(steps):
        return known
    numbers = steps.drop_null().to_numpy(zero_copy_only=False)
    ends = [int(numbers.min()), int(numbers.max()), *(known or ())]
    return min(ends), max(ends)


def _count_names(found: Survey, batch: Any) -> None:
    """Adds names, versions, runs and steps."""
    for entry in batch.column("run").value_counts().to_pylist():
        found.runs[entry["values"]] += entry["counts"]
    found.steps = _wider(found.steps, batch)
    pairs = {}
    import pyarrow.compute as compute

    joined = compute.binary_join_element_wise(
        batch.column("function"), batch.column("version").fill_null(""), "\0", null_handling="replace"
    )
    for entry in joined.value_counts().to_pylist():
        name, _, version = entry["values"].rpartition("\0")
        pairs[name, version] = entry["counts"]
    for (name, version), count in pairs.items():
        if name not in found.versions:
            found.functions.append(name)
            found.versions[name] = Counter()
        found.versions[name][version] += count


def _codes(names: Any, known: Sequence[str]) -> Any:
    """The place of each name among those known."""
    import pyarrow
    import pyarrow.compute as compute

    return compute.index_in(names, value_set=pyarrow.array(known, pyarrow.string())).to_numpy(zero_copy_only=False)


def _decide_sizes(batches: dict[BatchKey, BatchSummary], given: int | None) -> None:
    """The group size of each batch: what its samples say, and where they leave it open, what most
    of its writer's batches have."""
    usual: dict[str, Counter[int]] = {}
    for (writer, *_), batch in batches.items():
        if batch.high is not None and batch.high == batch.low:
            usual.setdefault(writer, Counter())[batch.low] += batch.rows
    for (writer, *_), batch in batches.items():
        low, high = batch.low, batch.high
        if high is not None and low > high:
            batch.size = 0
        elif given is not None:
            batch.size = given if low <= given and (high is None or given <= high) else 0
        elif high is None or low == high:
            batch.size = low
        else:
            common = usual.get(writer)
            best = common.most_common(1)[0][0] if common else low
            batch.size = best if low <= best <= high else low
