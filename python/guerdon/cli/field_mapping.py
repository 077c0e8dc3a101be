"""Which field of the rows is which column of the reward functions.

- F-1  A column that a function names must be in every row, or (with a default) in none: a column that comes and goes
       would make a reward depend on where a chunk begins.
- F-2  Functions that take whatever there is (``**row``) get every field, None where a row lacks it.
- F-3  ``--map column=field`` renames: the field is no column under its own name any more.
- F-4  A field is found by its exact name, else as a path (``reward_model.ground_truth``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from guerdon._registration.spec import FunctionSpec, Wants
from guerdon._submit.columns import RECORDERS, TEXT
from guerdon.cli.exit_codes import UsageError
from guerdon.cli.input_rows import Row, Source, kind_of

__all__ = ["Fields", "Plan", "plan"]

_ABSENT: Final[Any] = object()
_OWN: Final = frozenset({"prompts", "completions", "num_generations"})
"""Argument names of `Dispatcher.submit` that no dataset column can have."""
_NO_COLUMNS: Final = frozenset({"prompt", "completion", "environment", "environments", "trainer_state", *RECORDERS})
"""Names that mean something else to every function; a field of such a name is not for them."""


@dataclass(frozen=True)
class Fields:
    """What the command line says about the rows."""

    completion: str = "completion"
    prompt: str | None = None
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        """Fields that are no columns under their own names (F-3)."""
        return {self.completion, self.prompt or "prompt", *self.columns.values()}


@dataclass(frozen=True)
class Plan:
    """How rows become a batch: where completion, prompt and each column are found.

    Attributes:
        rows: How many rows the source has.
        prompt: The field of the prompts; None if there are none.
    """

    rows: int
    completion: str
    prompt: str | None
    columns: dict[str, str]

    def batch(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Keyword arguments of `Dispatcher.submit` for these rows."""
        arguments: dict[str, Any] = {"completions": [find(row.fields, self.completion) for row in rows]}
        if self.prompt is not None:
            arguments["prompts"] = [find(row.fields, self.prompt) for row in rows]
        for column, name in self.columns.items():
            values = (find(row.fields, name) for row in rows)
            arguments[column] = [None if value is _ABSENT else value for value in values]
        return arguments


def find(fields: dict[str, Any], name: str) -> Any:
    """The value of the field `name` (F-4), or a mark that there is none."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def plan(source: Source, specs: Sequence[FunctionSpec], fields: Fields) -> Plan:
    """Read all rows, check them, and settle what the functions get.

    Raises:
        UsageError: A row or a field can't be used; the message names both.
    """
    layouts = _survey(source, fields)
    if not layouts.rows:
        raise UsageError(f"{source.name} has no rows.")
    wants = [(spec.name, each) for spec in specs for each in (spec.wants, spec.finish) if each is not None]
    columns = {name: name for name in layouts.names if name not in fields.taken | _NO_COLUMNS}
    columns.update(fields.columns)
    prompt = fields.prompt or "prompt"
    prompts = layouts.lacking(prompt) is None
    asked = fields.prompt is not None or any({"prompt", "prompts"} & set(each.required) for _, each in wants)
    if asked or prompt in layouts.names:
        _require_all(layouts, prompt, "the prompt", "--prompt-field FIELD")
    wanted = _wanted(wants, columns, layouts)
    for column, name in fields.columns.items():
        _require_all(layouts, name, f"--map {column}={name}", f"--map {column}=FIELD")
        if column not in wanted:
            raise UsageError(f"--map {column}={name}: no reward function takes a column {column!r}.")
    return Plan(layouts.rows, fields.completion, prompt if prompts else None, wanted)


class _Layouts:
    """Which fields the rows have: the distinct sets of them, and where each was seen first."""

    def __init__(self, source: Source) -> None:
        self.rows = 0
        self.source = source
        self._first: dict[tuple[str, ...], int] = {}

    def add(self, names: tuple[str, ...], place: int) -> None:
        self.rows += 1
        self._first.setdefault(names, place)

    @property
    def names(self) -> dict[str, None]:
        return {name: None for layout in self._first for name in layout}

    def lacking(self, name: str) -> int | None:
        """Place of the first row without the field; None if all rows have it."""
        return min((place for layout, place in self._first.items() if name not in layout), default=None)


def _survey(source: Source, fields: Fields) -> _Layouts:
    layouts = _Layouts(source)
    paths = [name for name in fields.taken if "." in name]
    for row in source.rows(strict=True):
        completion = find(row.fields, fields.completion)
        if completion is _ABSENT:
            raise UsageError(
                f"{source.where(row.place)} has no field {fields.completion!r}. It has: {_listed(row.fields)}. "
                "Say where the completion is: --completion-field FIELD."
            )
        if not _is_text(completion):
            raise UsageError(
                f"{source.where(row.place)}: {fields.completion!r} is {_shown(completion)}; expected a text or a list "
                "of messages."
            )
        found = tuple(path for path in paths if path not in row.fields and find(row.fields, path) is not _ABSENT)
        layouts.add((*row.fields, *found), row.place)
    return layouts


def _wanted(wants: Sequence[tuple[str, Wants]], columns: dict[str, str], layouts: _Layouts) -> dict[str, str]:
    """The columns that travel: those that are named, and all of them if a function takes what there is."""
    wanted: dict[str, str] = {}
    for function, each in wants:
        for name in each.named:
            if name in columns:
                if name in each.reserved and name in (TEXT, f"{TEXT}s"):
                    raise UsageError(
                        f"reward function {function!r} asks for {name!r}, the completion as plain text, and the rows "
                        f"have a field of that name: ambiguous. Rename the field: --map OTHER={columns[name]}."
                    )
                _require_all(layouts, columns[name], f"the column {name!r} of {function!r}", f"--map {name}=FIELD")
                wanted[name] = columns[name]
            elif name in each.required and name not in each.reserved:
                raise UsageError(
                    f"reward function {function!r} wants the column {name!r}, and no row of {layouts.source.name} "
                    f"has such a field. The rows have: {_listed(layouts.names)}.{_close(name, layouts.names)} Say "
                    f"which field it is: --map {name}=FIELD."
                )
    if any(each.row or each.everything for _, each in wants):
        wanted = {**columns, **wanted}
    for name in sorted(_OWN & wanted.keys()):
        raise UsageError(
            f"the field {wanted[name]!r} has the name of an argument. Give it another one: --map NAME={wanted[name]}."
        )
    return wanted


def _require_all(layouts: _Layouts, name: str, what: str, option: str) -> None:
    place = layouts.lacking(name)
    if place is None:
        return
    if name not in layouts.names:
        raise UsageError(
            f"no row of {layouts.source.name} has the field {name!r} ({what}). The rows have: "
            f"{_listed(layouts.names)}. Say where it is: {option}."
        )
    raise UsageError(
        f"{layouts.source.where(place)} has no field {name!r} ({what}), other rows have it. Add it there, null where "
        "there is nothing."
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(message, dict) for message in value))


def _shown(value: object) -> str:
    return "a list that holds other things than messages" if isinstance(value, list) else kind_of(value)


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "") if shown else "no fields"


def _close(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
