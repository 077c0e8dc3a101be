"""Which columns of a batch each reward function gets: one `FunctionColumns` per function.

- Only columns that some function declared travel to the engine, each once, whoever wants it.
- Judges and kernels get strings, whatever their columns hold; strings are not copied.
- Where a limit counts tokens by a function, that runs here, before anything is submitted.
- What the names of the columns decide is worked out once for all batches with the same (`layout`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._batch.columns import COMPLETIONS, TEXT, Data, Single
from guerdon._batch.layout import Consumer, Layout, Route, Source, layout
from guerdon._batch.text_parameters import TextParameters
from guerdon._batch.token_counts import counting
from guerdon._batch.trainer_state import names_history, snapshot
from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.http.template import MadeField
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon._batch.kept_columns import KeptColumns
    from guerdon._lanes.http.template import Field
    from guerdon._lanes.native.columns import KernelColumn
    from guerdon._native import Constant, FunctionColumns

# What says whether two batches bring the same columns: their names, and whether there is a
# trainer's state.
_Names = tuple[tuple[str, ...], tuple[str, ...], bool]


@dataclass(frozen=True)
class RoutedColumns:
    """How a batch goes to the engine: its columns, what they are called, one `FunctionColumns` per
    function, and the columns of its journal by index, None for one that it lacks."""

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
        # Of the last batch. Written by whatever thread has one with other columns, as a whole.
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
        self._text_parameters.look(known.routes, columns.given)
        uses = [route.use or columns.use(route) for route in known.routes]
        sources = [] if self._kept is None else self._kept.of(data)
        journal = [None if source is None else columns.index(source) for source in sources]
        return RoutedColumns(columns.values, columns.names, uses, journal)

    def sources(self, data: Data) -> set[Source]:
        """Where the values that functions and a journal get come from in batches with the columns
        of `data`, whatever is in them.

        Raises:
            DataError: A function asks for a column that is not there, or its name is ambiguous.
        """
        known = self._layout(data)
        found = set(known.sources)
        for route in known.routes:
            for field in route.consumer.spec.text_fields or ():
                found.update(route.available[name] for name in _columns(field, route.available))
            if route.counted is not None:
                found.update(route.counted[0][name] for name in route.counted[1])
        if self._kept is not None:
            found.update(source for source in self._kept.of(data) if source is not None)
        return found

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
        self._filled: dict[tuple[Source, Field | KernelColumn], tuple[str, int]] = {}
        self.names = list(known.names)
        self.values = [self._value(*source) for source in known.sources]

    def use(self, route: Route) -> FunctionColumns:
        """What a function gets that differs from batch to batch: counted tokens, strings of
        requests and for kernels."""
        from guerdon._native import FunctionColumns

        consumer = route.consumer
        tokens = None
        if consumer.counting is not None and route.counted is not None:
            tokens = consumer.counting.count(self._data, *route.counted)
        fields = consumer.spec.text_fields
        if fields is None:
            return FunctionColumns(route.names, route.columns, route.finish_names, route.finish_columns, tokens)
        filled = [self._fill(route.available, field, consumer.spec.name) for field in fields]
        return FunctionColumns([kind for kind, _ in filled], [index for _, index in filled], tokens=tokens)

    def _fill(self, available: Mapping[str, Source], field: Field | KernelColumn, function: str) -> tuple[str, int]:
        """What kind of strings a field is, and the index of its column."""
        from guerdon._lanes.native.columns import PLAIN, KernelColumn

        is_text = isinstance(field, KernelColumn) and field.form == "text"
        source = ("own", TEXT) if is_text else available[field.column]
        known = self._filled.get((source, field))
        if known is None:
            made = self._texts(source, available, field, function)
            if made is None:
                known = PLAIN, self.index(source)
            else:
                self.values.append(made[1])
                self.names.append(field.column)
                known = made[0], len(self.values) - 1
            self._filled[source, field] = known
        return known

    def _texts(
        self, source: Source, available: Mapping[str, Source], field: Field | KernelColumn, function: str
    ) -> tuple[str, list[object]] | None:
        """The strings of a field, if they are not the values themselves."""
        from guerdon._lanes.http import column_texts
        from guerdon._lanes.native import columns as kernel_columns

        values, samples = self.given(source), self._data.samples
        if isinstance(field, kernel_columns.KernelColumn):
            return kernel_columns.texts_of(values, field, samples, always=self._is_open)
        if isinstance(field, MadeField):
            given = {name: self.given(available[name]) for name in _columns(field, available)}
            return field.made(given, samples)
        others = [self.given(available[name]) for name in field.columns[1:]]
        return column_texts.texts_of(values, field, samples, function, others=others, always=self._is_open)

    def given(self, source: Source) -> list[object] | Single:
        kind, name = source
        values: list[object] | Single = self._data.texts if name == TEXT else getattr(self._data, kind)[name]
        return values

    def index(self, source: Source) -> int:
        """Where a column stands; from now on, if it had no place."""
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


def _columns(field: Field | KernelColumn, available: Mapping[str, Source]) -> list[str]:
    """The columns of a field, and those optional ones that are there."""
    optional = field.optional if isinstance(field, MadeField) else ()
    return [*field.columns, *(name for name in optional if name in available)]


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
