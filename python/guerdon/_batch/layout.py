"""Sources of the values of the functions' calls: decided by column names, before any value is read.

- A batch that lacks a function's columns is refused before any call, with the existing names.
- A reserved name means the reserved value. A function with such a parameter is refused if the
  dataset has a column of that name. The exception are trainers with environments: there a column
  ``environment`` names a row's environment, and a parameter ``environment`` gets the live object.
- Live environments never travel to a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._batch.columns import COMPLETION_IDS, COMPLETIONS, ENVIRONMENTS, PROMPTS, TEXT, TRAINER_STATE, Data
from guerdon._batch.token_counts import Counting
from guerdon._functions.spec import FunctionSpec, Wants, column_of
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon._native import FunctionColumns

# Source of a value: ("own", "prompts"), ("dataset", "answer"), ("state", "live").
Source = tuple[str, str]

_RESERVED: dict[str, Source] = {
    "prompt": ("own", PROMPTS),
    "prompts": ("own", PROMPTS),
    "completion": ("own", COMPLETIONS),
    "completions": ("own", COMPLETIONS),
    "completion_ids": ("own", COMPLETION_IDS),
    "text": ("own", TEXT),
    "texts": ("own", TEXT),
    "environment": ("own", ENVIRONMENTS),
    "environments": ("own", ENVIRONMENTS),
    "trainer_state": ("state", "live"),
}

_NEARLY = 0.85  # similarity of two names, of difflib
_MOST_VALUES = 65_535  # of a call: a message to a worker counts them in 16 bits

_HINTS = {
    PROMPTS: "give prompts=[...], or prompt= for one sample",
    COMPLETION_IDS: "give completion_ids= too",
    ENVIRONMENTS: "it needs a trainer with environments, or environments=[...] (environment= for one sample)",
    "live": "it comes from a trainer; elsewhere give trainer_state= too",
}


@dataclass(frozen=True)
class Consumer:
    """A function that gets values: its spec, whether it reads the trainer's history, and what
    counts its tokens."""

    spec: FunctionSpec
    history: bool
    counting: Counting | None


@dataclass(frozen=True)
class Route:
    """Sources of one function's values.

    Attributes:
        available: Every name under which there is a value for it.
        names: Those of its calls, in order; None where they go by position.
        columns: Their places among the layout's sources; texts for requests and kernels are made
            for each batch.
        use: The same as the engine takes it, for every batch; None where each makes its own.
        counted: Names that the function of its tokens gets, and where from.
    """

    consumer: Consumer
    available: dict[str, Source]
    names: tuple[str, ...] | None
    columns: list[int]
    finish_names: tuple[str, ...]
    finish_columns: list[int]
    use: FunctionColumns | None
    counted: tuple[dict[str, Source], tuple[str, ...]] | None


@dataclass(frozen=True)
class Layout:
    """The engine's columns, what messages call them, and a route for each function."""

    sources: tuple[Source, ...]
    names: tuple[str, ...]
    routes: tuple[Route, ...]


def layout(consumers: Sequence[Consumer], data: Data) -> Layout:
    """Returns the values that batches with the columns of `data` have for each function.

    Raises:
        DataError: A column is missing, its name is ambiguous, or can't be sent to a worker.
    """
    places: dict[Source, int] = {}
    routes = tuple(_route(consumer, data, places) for consumer in consumers)
    names = tuple(TRAINER_STATE if kind == "state" else name for kind, name in places)
    return Layout(tuple(places), names, routes)


def _route(consumer: Consumer, data: Data, places: dict[Source, int]) -> Route:
    from guerdon._native import FunctionColumns

    spec, counting = consumer.spec, consumer.counting
    counted = None
    if counting is not None:
        there = _available(spec, counting.wants, data, f"{spec.name}, Limit(tokens=)")
        counted = there, _arrange(counting.wants, there)[0]
    available = _available(spec, spec.wants, data, spec.name)
    names: tuple[str, ...] | None
    names, by_position = _arrange(spec.wants, available)
    if spec.text_fields is not None:
        return Route(consumer, available, names, [], (), [], None, counted)
    if spec.composition is not None and not spec.pure:
        # Its members get the values instead.
        return Route(consumer, available, (), [], (), [], FunctionColumns((), []), None)
    _refuse_odd(spec.name, names)

    def place(source: Source) -> int:
        if source[0] == "state" and spec.leaves_process:
            source = ("state", "whole" if consumer.history else "shipped")
        return places.setdefault(source, len(places))

    columns = [place(available[name]) for name in names]
    finish_names: tuple[str, ...] = ()
    finish_columns: list[int] = []
    if spec.finish is not None:
        there = _available(spec, spec.finish, data, f"{spec.name}.finish_group")
        finish_names, _ = _arrange(spec.finish, there)
        finish_columns = [place(there[name]) for name in finish_names]
    names = None if by_position else names
    use = None
    if counted is None:
        use = FunctionColumns(names, columns, finish_names, finish_columns, second=spec.second_columns)
    return Route(consumer, available, names, columns, finish_names, finish_columns, use, counted)


def _arrange(wants: Wants, available: dict[str, Source]) -> tuple[tuple[str, ...], bool]:
    """The names of the calls, in order, and whether their values go by position."""
    names, by_position = wants.arrange(available)
    # a reserved name that the function does not take is a column like any other
    if wants.row and not wants.everything:
        taken = {*names, *wants.fixed}
        names += tuple(name for name, (kind, _) in available.items() if kind == "dataset" and name not in taken)
    return names, by_position


def _available(spec: FunctionSpec, wants: Wants, data: Data, called: str) -> dict[str, Source]:
    """Every name under which this batch has a value for the function, in the order in which a
    trainer gives them.

    Raises:
        DataError: A column is missing, or its name is ambiguous.
    """
    available: dict[str, Source] = {}
    for name in wants.reserved:
        kind, key = _RESERVED[name]
        if name in data.dataset:
            if name == "environment" and ENVIRONMENTS in data.own and name in wants.named:
                available[name] = (kind, key)
            elif name in wants.named:
                raise DataError(
                    f"reward function {called!r} asks for {name!r}, a reserved name, and the dataset has a column "
                    f"{name!r} too: ambiguous. Rename the column, or the parameter if another column is meant."
                )
        # a function that names them is on another lane
        elif key != ENVIRONMENTS or not spec.in_workers:
            there = data.trainer_state is not None if kind == "state" else key == TEXT or key in data.own
            if there:
                available[name] = (kind, key)
    available.update((name, ("dataset", name)) for name in data.dataset if name not in available)
    if spec.second_columns:
        of_pairs = (name for name in wants.named if column_of(name) in available)
        available.update([(name, available[column_of(name)]) for name in of_pairs])
    missing = wants.missing(available)
    if missing:
        raise DataError(_missing(spec, called, missing, wants, data, available))
    return available


def _refuse_odd(called: str, names: tuple[str, ...]) -> None:
    """Refuses names that can't be sent to a worker, and more than a message holds; only ``**row``
    and ``**columns`` can take them."""
    if len(names) > _MOST_VALUES:
        raise DataError(
            f"reward function {called!r} would get {len(names)} columns: expected at most {_MOST_VALUES}. Leave out what "
            "it does not need."
        )
    for name in names:
        if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError(
                f"the dataset has a column called {name!r}, which reward function {called!r} would get: a name can't "
                "hold a NUL or half a surrogate pair. Rename the column."
            )


def _missing(
    spec: FunctionSpec, called: str, missing: Sequence[str], wants: Wants, data: Data, available: dict[str, Source]
) -> str:
    name = missing[0]
    if name in wants.reserved:
        hint = _HINTS[_RESERVED[name][1]]
        return f"reward function {called!r} asks for {name!r}, which this batch doesn't have: {hint}."
    there = ", ".join(data.dataset) or "none"
    return (
        f"reward function {called!r} asks for the column{'s' if len(missing) > 1 else ''} "
        f"{', '.join(map(repr, missing))}, which this batch doesn't have. Its columns: {there}."
        + _missing_column_advice(spec, name, data, available)
    )


def _missing_column_advice(spec: FunctionSpec, name: str, data: Data, available: dict[str, Source]) -> str:
    """Returns advice about a missing column."""
    import difflib

    if spec.factory is not None:
        call = spec.factory.to_name(name, data.dataset)
        return f" Add it to the dataset, or name yours: {call}." if call else " Add it to the dataset."
    # A trainer's column is suggested only if a name is nearly its own.
    own = [other for other in available if other not in data.dataset]
    close = difflib.get_close_matches(name, list(data.dataset), n=1)
    close = close or difflib.get_close_matches(name, own, n=1, cutoff=_NEARLY)
    if close:
        return f" Did you mean {close[0]!r}?"
    if spec.plans:
        return " Add it to the dataset, or have the request name another, such as prompt, completion or text."
    return " Add it to the dataset, or give the parameter a default."
