"""Assigns columns of a batch to reward functions: one `FunctionColumns` per function.

- Only columns that some function declared travel to the engine, each once for all functions.
- Judges and kernels get strings, whatever the types of their columns; strings are not copied.
- A token counter of a limit runs here, before anything is submitted.
- Decisions that depend on column names alone are made once for all batches with the same names
  (`layout`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guerdon._batch.columns import COMPLETIONS, TEXT, Data, Single
from guerdon._batch.layout import Consumer, Layout, Route, Source, layout
from guerdon._batch.text_parameters import TextParameters
from guerdon._batch.token_counts import counting
from guerdon._batch.trainer_state import names_history, snapshot
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon._batch.kept_columns import KeptColumns
    from guerdon._functions.lane_plan import TextField
    from guerdon._native import Constant, FunctionColumns

PLAIN: Final = "text"
"""The engine's name for columns of unchanged texts."""

# Two batches with equal values of this have the same columns: the names, and whether there is a
# trainer's state.
_Names = tuple[tuple[str, ...], tuple[str, ...], bool]


@dataclass
class RoutedColumns:
    """Columns of a batch as the engine takes them: the columns, their names, one `FunctionColumns`
    per function, and the indexes of the journal's columns (None for a missing column)."""

    columns: list[list[object] | Constant]
    names: list[str]
    uses: list[FunctionColumns]
    journal: list[int | None]


class ColumnRouter:
    """Routes columns to a fixed list of functions, batch by batch.

    Args:
        specs: The functions.
        kept: What a journal keeps.

    Attributes:
        example: The beginning of the first completion, for warnings.
    """

    def __init__(self, specs: Sequence[FunctionSpec], kept: KeptColumns | None = None) -> None:
        self._kept = kept
        self._consumers = tuple(
            Consumer(spec, spec.leaves_process and names_history(spec.target), counting(spec)) for spec in specs
        )
        # Columns of the last batch. Replaced as a whole by any thread whose batch has other
        # columns.
        self._last: tuple[_Names, Layout] | None = None
        self._text_parameters = TextParameters(specs)
        self.example = ""

    def route(self, data: Data, *, is_open: bool = False) -> RoutedColumns:
        """The engine's columns and, for each function, which of them its calls get.

        Args:
            is_open: Each addition must bring the same columns, whatever is in them.

        Raises:
            DataError: The batch lacks a column, a name is ambiguous, or a value can't be sent.
        """
        known = self._layout(data)
        columns = _BatchColumns(data, known, is_open)
        if not self.example and data.samples:
            self.example = reprlib.repr(data.own[COMPLETIONS][0])
        self._text_parameters.check(known.routes, columns.given)
        uses = [route.use or columns.use(route) for route in known.routes]
        sources = [] if self._kept is None else self._kept.of(data)
        journal = [None if source is None else columns.index(source) for source in sources]
        return RoutedColumns(columns.values, columns.names, uses, journal)

    def _layout(self, data: Data) -> Layout:
        names = tuple(data.own), tuple(data.dataset), data.trainer_state is not None
        last = self._last
        if last is None or last[0] != names:
            last = self._last = names, layout(self._consumers, data)
        return last[1]


class _BatchColumns:
    """The engine's columns of one batch: those of its layout, then the strings of requests."""

    def __init__(self, data: Data, known: Layout, is_open: bool) -> None:
        self._data = data
        self._is_open = is_open
        self._indexes = {source: index for index, source in enumerate(known.sources)}
        self._filled: dict[tuple[Source, TextField], tuple[str, int]] = {}
        self.names = list(known.names)
        self.values = [self._value(*source) for source in known.sources]

    def use(self, route: Route) -> FunctionColumns:
        """Returns the parts of a function's input that differ from batch to batch: counted tokens,
        strings of requests and for kernels."""
        from guerdon._native import FunctionColumns

        consumer = route.consumer
        tokens = None
        if consumer.counting is not None and route.counted is not None:
            tokens = consumer.counting.count(self._data, *route.counted)
        fields = consumer.spec.text_fields
        if fields is None:
            finish = route.finish_names, route.finish_columns
            second = route.consumer.spec.second_columns
            return FunctionColumns(route.names, route.columns, *finish, tokens, second)
        filled = [self._fill(route.available, field, consumer.spec.name) for field in fields]
        return FunctionColumns([kind for kind, _ in filled], [index for _, index in filled], tokens=tokens)

    def _fill(self, available: Mapping[str, Source], field: TextField, function: str) -> tuple[str, int]:
        """Returns the kind of strings of a field, and the index of its column."""
        source = ("own", TEXT) if field.is_text else available[field.column]
        known = self._filled.get((source, field))
        if known is None:
            given = {name: self.given(available[name]) for name in _columns(field, available) if name != field.column}
            given[field.column] = self.given(source)
            made = field.texts(given, self._data.samples, function, always=self._is_open)
            if made is None:
                known = PLAIN, self.index(source)
            else:
                self.values.append(made[1])
                self.names.append(field.column)
                known = made[0], len(self.values) - 1
            self._filled[source, field] = known
        return known

    def given(self, source: Source) -> list[object] | Single:
        kind, name = source
        values: list[object] | Single = self._data.texts if name == TEXT else getattr(self._data, kind)[name]
        return values

    def index(self, source: Source) -> int:
        """Returns the index of a column, which is added if it is new."""
        index = self._indexes.get(source)
        if index is None:
            self.values.append(self._value(*source))
            self.names.append(source[1])
            index = self._indexes[source] = len(self.values) - 1
        return index

    def _value(self, kind: str, name: str) -> list[object] | Constant:
        if kind == "own":
            return self._data.texts if name == TEXT else self._data.own[name]
        if kind == "dataset":
            values = self._data.dataset[name]
            return _const(values.value) if isinstance(values, Single) else values
        state = self._data.trainer_state
        return _const(state if name == "live" else snapshot(state, history=name == "whole"))


def _columns(field: TextField, available: Mapping[str, Source]) -> list[str]:
    """The columns of a field, including the optional ones that exist."""
    return [*field.columns, *(name for name in field.optional if name in available)]


def _const(value: object) -> Constant:
    from guerdon._native import Constant

    return Constant(value)


def unshippable(error: TypeError, routed: RoutedColumns) -> Exception:
    """The engine's refusal of a value that can't be pickled, by its column and sample."""
    if len(error.args) != 3:
        return error
    message, column, sample = error.args
    where = "" if sample is None else f" of sample {sample}"
    return DataError(
        f"column {routed.names[column]!r}{where} can't be sent to a worker process: {message}. Give it as plain values, "
        "or have "
        "the functions that want it run in this process: reward(fn, lane='thread')."
    )
