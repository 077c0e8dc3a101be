"""Values of calls that came as bytes, as the lanes' threads and loops look at those of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guerdon._worker.wire import Constant, decode_columns, names_of

if TYPE_CHECKING:
    from guerdon._native import FrameView

__all__ = ["EncodedView"]


class EncodedView:
    """What a `FrameView` is whose values are bytes.

    Attributes:
        error: What unpickling a value raised: no call can be made then.
    """

    __slots__ = (
        "_columns",
        "_places",
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
        self.rows: list[tuple[object, ...]] | None = None
        self._columns: list[Any] = []
        self._places: dict[int, int] = {}
        self.columns: list[tuple[bool, Any]] = []
        self.error: BaseException | None = None
        try:
            _, self._columns = decode_columns(memoryview(encoded))
            places = memoryview(view.places).cast("Q").tolist()
            self._places = {place: index for index, place in enumerate(places)}
            self.columns = self.columns_of(0)
        except BaseException as error:  # user code may run where values are unpickled
            self.error = error

    def columns_of(self, slice: int) -> list[tuple[bool, Any]]:
        """`columns` for the samples of one batch in a call on gathered ones."""
        return [
            (True, column.value) if isinstance(column, Constant) else (False, _BySample(column, self._places, slice))
            for column in self._columns
        ]


class _BySample:
    """A column that has values for some samples of a batch."""

    __slots__ = ("_base", "_places", "_values")

    def __init__(self, values: list[Any], places: dict[int, int], slice: int) -> None:
        self._values = values
        self._places = places
        self._base = slice << 32

    def __getitem__(self, index: int | slice) -> Any:
        values, places, base = self._values, self._places, self._base
        if isinstance(index, slice):
            return [values[places[base + sample]] for sample in range(index.start, index.stop)]
        return values[places[base + index]]
