"""The arguments of calls, out of a batch's columns.

Values are passed unchanged; each call gets new lists, which it may change. The value of a call with
a single value comes straight from its column. Tuples of several values are made shortly before they
are needed: thousands at once would keep the collector busy, and a loop from turning. An open batch
frees the values of discarded calls: no user code gets their substitute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from guerdon._native import FrameView

if TYPE_CHECKING:
    from guerdon._lanes.encoded_values import EncodedView
    from guerdon._native import LoopFrame

    View: TypeAlias = FrameView | EncodedView

# Argument tuples that are made at a time.
_ROWS = 256
# The number of a gathered sample's slice is in the bits above its index.
_SLICE = 1 << 32


class DiscardedCall(Exception):
    """Ends a call that is not open any more; it is not reported."""


class FrameArguments:
    """A frame on an event loop, with the arguments of its calls."""

    __slots__ = ("_rest", "are_rows", "firsts", "frame", "values", "view")

    def __init__(self, frame: LoopFrame) -> None:
        self.frame = frame
        self.view = view = opened(frame.view)
        self.firsts = samples_of(view)
        # Arguments of calls of one sample; None: the calls are of several.
        self.values: list[Any] | None = None
        self.are_rows = False
        if view.kind == "sample":
            error = unreadable(view)
            values: Iterable[Any]
            self.are_rows, values = singles_of(view, self.firsts) if error is None else (False, _UnreadableView(error))
            self.values = values if isinstance(values, list) else []
            self._rest = iter(values)

    def more(self, values: list[Any], index: int) -> Any:
        """Returns the arguments of a call that are not among its `values` yet."""
        values.extend(islice(self._rest, index + _ROWS - len(values)))
        return values[index]


def opened(view: FrameView) -> View:
    """Returns the values to read in place of a frame's view: its values may have come as bytes."""
    encoded = view.encoded
    if encoded is None:
        return view
    from guerdon._lanes.encoded_values import EncodedView

    return EncodedView(view, encoded)


def unreadable(view: View) -> BaseException | None:
    """Returns the error of reading a frame's values."""
    return None if isinstance(view, FrameView) else view.error


class _UnreadableView:
    """Replaces unreadable values: each call fails with the reason."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise self._error


def samples_of(view: View) -> Sequence[int]:
    """The first sample of each call."""
    first = view.first
    if first is not None:
        return range(first, first + view.calls)
    return memoryview(view.firsts).cast("Q").tolist()


def singles_of(view: View, samples: Sequence[int]) -> tuple[bool, Iterable[Any]]:
    """Returns the arguments of calls of one sample each: whether it is tuples, and the values."""
    rows, columns = view.rows, view.columns
    if rows is not None:
        return True, _at(rows, samples)
    if all(constant for constant, _ in columns):
        return True, repeat(tuple(value for _, value in columns), len(samples))
    if len(columns) == 1:
        return False, _at(columns[0][1], samples)
    return True, zip(*(repeat(value) if constant else _at(value, samples) for constant, value in columns), strict=False)


def lists_of(view: View, first: int) -> list[Any]:
    """The arguments of the group or batch call that begins with sample `first`.

    The values of a discarded call may be gone: check whether it is still open before using them.
    """
    end = first + view.size
    return [value if constant else value[first:end] for constant, value in view.columns]


def gathered_of(view: View, samples: Callable[[], bytes]) -> tuple[list[Any], int]:
    """The arguments of the call on the gathered `samples`, and how many these are.

    Raises:
        DiscardedCall: None of them is open any more.
    """
    while True:
        packed = samples()
        places = memoryview(packed).cast("Q").tolist()
        if not places:
            raise DiscardedCall
        if places[-1] < _SLICE:
            lists = [value if constant else [value[place] for place in places] for constant, value in view.columns]
        else:
            lists = _of_slices(view, places)
        if samples() == packed:  # none was discarded while they were taken
            return lists, len(places)


def _of_slices(view: View, places: list[int]) -> list[Any]:
    """The same for samples of several batches, each with its slice."""
    slices = [view.columns_of(number) for number in range(places[-1] // _SLICE + 1)]
    pairs = [divmod(place, _SLICE) for place in places]
    return [[slices[number][column][1][sample] for number, sample in pairs] for column in range(len(slices[0]))]


def scores_from(doubles: bytes) -> list[float | None]:
    """Scores as `finish_group` gets them."""
    return [None if score != score else score for score in memoryview(doubles).cast("d")]


def spread(function: Callable[..., Any]) -> Callable[[Iterable[Any]], Any]:
    """`function`, called with a tuple of its values."""
    return lambda row: function(*row)


def _at(values: Any, samples: Sequence[int]) -> list[Any]:
    if isinstance(samples, range):
        found: list[Any] = values[samples.start : samples.stop]
        return found
    return [values[sample] for sample in samples]
