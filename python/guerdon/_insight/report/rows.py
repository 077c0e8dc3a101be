"""A record batch of a journal as NumPy arrays.

- Names are numbers: those of the functions and runs that the first pass found.
- Nulls become NaN, or the smallest integer in columns that have no NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from guerdon._insight.journal.schema import DispatcherFacts
from guerdon.results.status import Status

__all__ = [
    "FAILED",
    "NAMES",
    "NO_STEP",
    "STATUSES",
    "Rows",
    "codes",
    "encoded",
    "floats",
    "integers",
    "number",
    "process_of",
    "writer_of",
]

NO_STEP: Final = np.iinfo(np.int64).min
STATUSES: Final = (*(status.label for status in Status), "other")
"""The names of outcomes; "other" is for those that a later version may add."""
FAILED: Final = np.array([*(status.failed for status in Status), False])
_BITS_OF_RANK: Final = 16

NAMES: Final = ("run", "function", "version", "status", "reason")
"""Columns of few different strings."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """A number of rows; each array has one item a row.

    Attributes:
        batch: The record batch, for the columns that few rows need.
        part: The number of the part; `row` the place of each row in it.
        function: Number of the function; -1 where it is not reported.
        step: Step, or batch where the journal has no steps; `NO_STEP` where it has none.
        bucket: Where on the axis; the last bucket is for rows without a step.
        status: Place in `STATUSES`.
    """

    batch: Any
    part: int
    facts: DispatcherFacts
    row: Integers
    function: Integers
    writer: Integers
    batch_id: Integers
    group: Integers
    sample: Integers
    step: Integers
    bucket: Integers
    status: Integers
    reward: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.function)


def writer_of(process: int, run: Integers, rank: Integers, runs: int) -> Integers:
    """A number for each writer: a process, in a run and as a rank."""
    numbers: Integers = ((process * (runs + 2) + run + 1) << _BITS_OF_RANK) + rank
    return numbers


def process_of(writer: int, runs: int) -> tuple[int, int, int]:
    """The process, run and rank of which `writer_of` made the number."""
    process, run = divmod(writer >> _BITS_OF_RANK, runs + 2)
    return process, run - 1, writer & ((1 << _BITS_OF_RANK) - 1)


def encoded(batch: Any, name: str) -> tuple[list[str | None], Integers]:
    """The different texts of the column, None behind them, and for each row the place of its text;
    all are None where the column is missing."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return [None], np.zeros(batch.num_rows, np.int64)
    column = batch.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = column.dictionary.to_pylist()
    places = column.indices.cast(pa.int64()).fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return [*texts, None], places


def codes(batch: Any, name: str, numbers: dict[str, int], missing: int = -1) -> Integers:
    """The number of each text of the column; `missing` for null and for texts that `numbers`
    lacks."""
    texts, places = encoded(batch, name)
    chosen: Integers = np.array([missing if text is None else numbers.get(text, missing) for text in texts])[places]
    return chosen


def number(value: float) -> float | None:
    """The number for JSON; None where it is not finite."""
    return float(f"{float(value):.9g}") if math.isfinite(value) else None


def floats(batch: Any, name: str) -> Floats:
    """The column as float64, NaN where it is null or missing."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return np.full(batch.num_rows, np.nan)
    array: Floats = batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return array


def integers(batch: Any, name: str, missing: int = 0) -> Integers:
    """The column as int64, `missing` where it is null or missing."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return np.full(batch.num_rows, missing, np.int64)
    array: Integers = batch.column(name).cast(pa.int64(), safe=False).fill_null(missing).to_numpy(zero_copy_only=False)
    return array
