"""Values of calls that came as bytes, with the interface of a batch's values.

A value whose unpickling runs code is unpickled in its own call (columns-1): a call on one sample
unpacks a `_LazyRow`, a call on lists slices a `_BySample`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from guerdon._worker.columns import Constant, KnownConstants, Values, import_all
from guerdon._worker.wire import names_of

if TYPE_CHECKING:
    from guerdon._native import FrameView

__all__ = ["EncodedView"]


class EncodedView:
    """The counterpart of a `FrameView` with encoded values.

    Attributes:
        error: What unpickling a constant raised: no call can be made then.
    """

    __slots__ = (
        "_places",
        "_values",
        "calls",
        "columns",
        "error",
        "first",
        "firsts",
        "function",
        "kind",
        "names",
        "rows",
        "size",
    )

    def __init__(self, view: FrameView, encoded: bytes) -> None:
        self.function, self.kind, self.calls, self.size = view.function, view.kind, view.calls, view.size
        self.first, self.firsts = view.first, view.firsts
        self.names = names_of(view.encoded_names)
        self.rows: _LazyRows | None = None
        self._values: Values | None = None
        self._places: dict[int, int] = {}
        self.columns: list[tuple[bool, Any]] = []
        self.error: BaseException | None = None
        try:
            values = Values(memoryview(encoded), KnownConstants())
            import_all(values.modules)
            values.decode()
            self._values = values
            places = memoryview(view.places).cast("Q").tolist()
            self._places = {place: index for index, place in enumerate(places)}
            self.columns = self.columns_of(0)
            if values.pickles:
                self.rows = _LazyRows(values, self._places)
        except BaseException as error:  # unpickling a constant may run user code
            self.error = error

    def columns_of(self, slice: int) -> list[tuple[bool, Any]]:
        """`columns` for the samples of one batch in a call on gathered ones."""
        values = self._values
        if values is None:
            return []
        return [
            (True, column.value)
            if isinstance(column, Constant)
            else (False, _BySample(values, column, self._places, slice))
            for column in values.columns
        ]


class _BySample:
    """A column that has values for some samples of a batch."""

    __slots__ = ("_base", "_column", "_places", "_values")

    def __init__(self, values: Values, column: list[Any], places: dict[int, int], slice: int) -> None:
        self._values = values
        self._column = column
        self._places = places
        self._base = slice << 32

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._one(sample) for sample in range(index.start, index.stop)]
        return self._one(index)

    def _one(self, sample: int) -> Any:
        place = self._places[self._base + sample]
        self._values.load(place)
        return self._column[place]


class _LazyRows:
    """The arguments of calls on one sample, by sample."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: Values, places: dict[int, int]) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[sample] for sample in range(index.start, index.stop)]
        return _LazyRow(self._values, self._places[index])


class _LazyRow:
    """The arguments of a call; unpacking them unpickles them."""

    __slots__ = ("_place", "_values")

    def __init__(self, values: Values, place: int) -> None:
        self._values = values
        self._place = place

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.row(self._place))
