"""The arguments of calls, out of a batch's columns.

- A-1  Values are passed as they are. A call that gets lists gets its own, so that it may change them.
- A-2  A call of one value gets it straight from its column. Tuples are made of several, and not long before they are needed:
       thousands at once would keep the collector busy, and a loop from turning.
- A-3  A batch that grows lets go of the values of calls that were swept. No user code sees what is left in their place:
       it raises `Swept`, or there is nothing to call a function with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon._native import Chunk, Jobs


# Argument tuples that are made at a time.
_ROWS = 256
# What stands above a sample in its place in a call on gathered ones: the number of its share.
_SHARE = 1 << 32


class Swept(Exception):
    """A call that counts no more; nobody hears of it."""


class FrameArguments:
    """The calls of one frame, with their arguments."""

    __slots__ = ("_rest", "are_rows", "firsts", "jobs", "values")

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.firsts = samples_of(jobs)
        # What calls of one sample are called with; None: the calls are of several.
        self.values: list[Any] | None = None
        self.are_rows = False
        if jobs.kind == "sample":
            self.are_rows, values = singles_of(jobs, self.firsts)
            self.values = values if isinstance(values, list) else []
            self._rest = iter(values)

    def more(self, values: list[Any], index: int) -> Any:
        """What a call is called with that is not among its `values` yet."""
        values.extend(islice(self._rest, index + _ROWS - len(values)))
        return values[index]


def samples_of(work: Chunk | Jobs) -> Sequence[int]:
    """The first sample of each call."""
    line = work.line
    if line is not None:
        return range(line, line + work.calls)
    return memoryview(work.firsts).cast("Q").tolist()


def singles_of(work: Chunk | Jobs, samples: Sequence[int]) -> tuple[bool, Iterable[Any]]:
    """What the calls on these samples, one each, are called with: whether it is tuples of values, and what it is (A-2)."""
    rows, columns = work.rows, work.columns
    if rows is not None:
        return True, _at(rows, samples)
    if all(constant for constant, _ in columns):
        return True, repeat(tuple(value for _, value in columns), len(samples))
    if len(columns) == 1:
        return False, _at(columns[0][1], samples)
    return True, zip(*(repeat(value) if constant else _at(value, samples) for constant, value in columns), strict=False)


def lists_of(work: Chunk | Jobs, first: int) -> list[Any]:
    """The arguments of the group or batch call that begins with sample `first`.

    Of a call that was swept they may be gone: ask whether it is open still before they are used (A-3).
    """
    end = first + work.size
    return [value if constant else value[first:end] for constant, value in work.columns]


def gathered_of(work: Chunk | Jobs, samples: Callable[[], bytes]) -> tuple[list[Any], int]:
    """The arguments of the call on gathered samples that `samples` tells of, and how many these are.

    Raises:
        Swept: None of them counts any more (A-3).
    """
    while True:
        packed = samples()
        places = memoryview(packed).cast("Q").tolist()
        if not places:
            raise Swept
        if places[-1] < _SHARE:
            lists = [value if constant else [value[place] for place in places] for constant, value in work.columns]
        else:
            lists = _of_shares(work, places)
        if samples() == packed:  # none was swept while they were taken
            return lists, len(places)


def _of_shares(work: Chunk | Jobs, places: list[int]) -> list[Any]:
    """The same for samples of several batches, each with the share that it is of; no value is that of a whole batch."""
    shares = [work.columns_of(share) for share in range(places[-1] // _SHARE + 1)]
    pairs = [(place // _SHARE, place % _SHARE) for place in places]
    return [[shares[share][column][1][sample] for share, sample in pairs] for column in range(len(shares[0]))]


def scores_from(doubles: bytes) -> list[float | None]:
    """Scores as `finish_group` gets them."""
    return [None if score != score else score for score in memoryview(doubles).cast("d")]


def spread(function: Callable[..., Any]) -> Callable[[Iterable[Any]], Any]:
    """`function`, called with a tuple of its values."""
    return lambda row: function(*row)


def _at(values: list[Any], samples: Sequence[int]) -> list[Any]:
    if isinstance(samples, range):
        return values[samples.start : samples.stop]
    return [values[sample] for sample in samples]
