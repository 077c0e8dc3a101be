"""The arguments of calls, out of a batch's columns.

- A-1  Values are passed as they are. A call that gets lists gets its own, so that it may change them.
- A-2  The argument tuples of a batch are made once per function.
- A-3  A batch that grows lets go of the values of calls that were swept. No user code sees what is left in their place:
       it raises `Swept`, or there is nothing to call a function with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon._native import Chunk, Jobs

Row = tuple[object, ...]


class Swept(Exception):
    """A call that counts no more; nobody hears of it."""


def rows_of(work: Chunk | Jobs) -> list[Row]:
    """One tuple of arguments for each sample of the batch (A-2)."""
    rows = work.rows
    if rows is None:
        rows = _zipped(work.columns, work.samples)
        work.keep_rows(rows)
    return rows


def lists_of(work: Chunk | Jobs, first: int) -> list[Any]:
    """The arguments of the group or batch call that begins with sample `first`.

    Of a call that was swept they may be gone: ask whether it is open still before they are used (A-3).
    """
    end = first + work.size
    return [value if constant else value[first:end] for constant, value in work.columns]


def scores_from(doubles: bytes) -> list[float | None]:
    """Scores as `finish_group` gets them."""
    return [None if score != score else score for score in memoryview(doubles).cast("d")]


def _zipped(columns: Sequence[tuple[bool, Any]], samples: int) -> list[Row]:
    if all(constant for constant, _ in columns):
        return [tuple(value for _, value in columns)] * samples
    return list(zip(*(repeat(value) if constant else value for constant, value in columns), strict=False))
