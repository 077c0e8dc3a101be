"""The first pass over a journal: which batches it has, with how many rows, and which columns.

Only the columns that say which cell a row is are read. One number of each batch is kept, never a
row; the second pass (`chunks`) knows by it when it has seen all of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._insight.journal.parts import JournalParts, Part
from guerdon._insight.journal.schema import KEYS, plain_type
from guerdon._insight.journal.selection import SeenRows, Selection
from guerdon.errors import DataError

__all__ = ["BatchKey", "Survey", "spans", "survey"]

_ROWS: Final = 1 << 16
_COLUMNS: Final = tuple(KEYS)

BatchKey = tuple[str, str, int, int]
"""Writer, run, rank and number of a batch."""


@dataclass
class Survey:
    """Contents of a journal's rows that count.

    Attributes:
        kinds: Of each part, the text columns that hold anything in it: ``"text"`` or ``"json"`` by
            the user's name.
        cells: Rows of each function that scored, in the order of their first rows.
        batches: Rows of each batch.
    """

    parts: list[Part]
    selection: Selection
    kinds: list[dict[str, str]] = field(default_factory=list)
    cells: Counter[str] = field(default_factory=Counter)
    batches: Counter[BatchKey] = field(default_factory=Counter)

    @property
    def functions(self) -> list[str]:
        return list(self.cells)

    @property
    def rows(self) -> int:
        return self.batches.total()

    @property
    def samples(self) -> int:
        """How many, if some function has scored all of them."""
        return max(self.cells.values())

    def available(self) -> dict[str, list[Part]]:
        """Returns by the name of each text column the parts that have it."""
        names: dict[str, list[Part]] = {}
        for part, kinds in zip(self.parts, self.kinds, strict=True):
            for name in kinds:
                names.setdefault(name, []).append(part)
        return names

    def parts_with_rows(self) -> list[Part]:
        return [part for part in self.parts if part.limit]


def survey(journal: JournalParts, selection: Selection) -> Survey:
    """Read which rows a journal has.

    Raises:
        DataError: There is no part, no row counts, or a row belongs to an unknown sample.
    """
    journal.check_some()
    found = Survey(journal.parts, selection)
    seen = SeenRows()
    types = {name: plain_type(name) for name in _COLUMNS}
    for part in found.parts:
        rows = chosen = 0
        for first, batch in part.batches(_COLUMNS, _ROWS, types=types):
            rows = first + batch.num_rows
            _check_keys(part, batch)
            seen.add(batch)
            counted = selection.rows(batch)
            chosen += counted.num_rows
            _count(found, part.writer, counted)
        part.limit = rows if chosen else 0  # nothing else of it is read again
        found.kinds.append({name: part.kinds[name] for name in part.filled_texts()} if chosen else {})
    if not found.batches:
        if not seen.runs:
            raise DataError(f"{journal.folder} has parts, but no rows in them.{journal.described_notes()}")
        its_steps = "" if seen.steps is None else f" Its steps: {seen.steps[0]} to {seen.steps[1]}."
        names = ", ".join(sorted(seen.runs))
        raise DataError(f"no row is of these runs and steps. The journal's runs: {names}.{its_steps}")
    return found


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


def _check_keys(part: Part, batch: Any) -> None:
    for name in KEYS:
        if name != "step" and batch.column(name).null_count:
            raise DataError(f"{part.path.name} has rows without a {name}, so nobody knows of which samples they are.")


def _count(found: Survey, writer: str, batch: Any) -> None:
    """Counts the rows by batch and by function."""
    if not batch.num_rows:
        return
    for run, rank, number, start, end in spans(batch):
        found.batches[writer, run, rank, number] += end - start
    for entry in batch.column("function").value_counts():
        found.cells[entry["values"].as_py()] += entry["counts"].as_py()
