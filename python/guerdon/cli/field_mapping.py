"""Maps fields of the rows to columns of the reward functions.

- A column that a function names must be in every row or, with a default, in none: else a reward
  would depend on where a chunk begins.
- Functions with ``**row`` get every field, None where a row lacks it.
- ``--map column=field`` renames: the field is then not a column under its own name.
- A field is found by its exact name, else as a path (``reward_model.ground_truth``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from guerdon._batch.columns import RECORDERS, TEXT
from guerdon._functions.spec import FunctionSpec, Wants
from guerdon.profile.exit_codes import UsageError
from guerdon.profile.input_rows import InputFile, InputRow, json_type

__all__ = ["ABSENT", "FieldMapping", "FieldOptions", "find", "listed", "map_fields", "suggestion"]

ABSENT: Final[Any] = object()
"""Result of `find` for a missing field."""
_ARGUMENTS: Final = frozenset({"prompts", "completions", "num_generations"})
"""Argument names of `Dispatcher.submit`, which no column can have."""
_RESERVED: Final = frozenset({"prompt", "completion", "environment", "environments", "trainer_state", *RECORDERS})
"""Names with another meaning for every function; fields of these names are not columns."""
_MADE: Final = frozenset({TEXT, f"{TEXT}s", "completion_ids", *_ARGUMENTS})
"""Names of what is made of completions."""


@dataclass(frozen=True)
class FieldOptions:
    """The fields that the command line names."""

    completion: str = "completion"
    prompt: str | None = None
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        """Returns the fields that are not columns under their own names."""
        return {self.completion, self.prompt or "prompt", *self.columns.values()}


@dataclass(frozen=True)
class FieldMapping:
    """The field of the completion, of the prompt and of each column.

    Attributes:
        rows: The number of rows.
        recorded: The number of rows with a completion.
        completion: None if there are none.
        prompt: The field of the prompts; None if there are none.
    """

    rows: int
    recorded: int
    completion: str | None
    prompt: str | None
    columns: dict[str, str]

    @property
    def left_out(self) -> int:
        """Returns the number of rows without a completion, where others have one."""
        return self.rows - self.recorded if self.recorded else 0

    def row(self, row: InputRow) -> dict[str, Any]:
        """The values that a row has, by column."""
        named = {**self.columns, "prompt": self.prompt, "completion": self.completion}
        found = {column: ABSENT if name is None else find(row.fields, name) for column, name in named.items()}
        return {column: value for column, value in found.items() if value is not ABSENT}

    def batch(self, rows: Sequence[InputRow]) -> dict[str, Any]:
        """Keyword arguments of `Dispatcher.submit` for these rows, which have completions."""
        completion = self.completion or ""
        arguments: dict[str, Any] = {"completions": [find(row.fields, completion) for row in rows]}
        if self.prompt is not None:
            arguments["prompts"] = [find(row.fields, self.prompt) for row in rows]
        for column, name in self.columns.items():
            values = (find(row.fields, name) for row in rows)
            arguments[column] = [None if value is ABSENT else value for value in values]
        return arguments


def find(fields: dict[str, Any], name: str) -> Any:
    """The value of the field `name`, or `ABSENT`."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return ABSENT
        value = value[part]
    return value


def map_fields(
    source: InputFile, specs: Sequence[FunctionSpec], fields: FieldOptions, *, rollouts: bool = True
) -> FieldMapping:
    """Read and check all rows, and decide which field each column is.

    Args:
        rollouts: Each row must have a completion. Else some may lack it, and columns that no
            function takes are kept: right answers may be in them.

    Raises:
        UsageError: A row or a field can't be used; the message names both.
    """
    layouts = _survey(source, fields, rollouts=rollouts)
    if not layouts.rows:
        raise UsageError(f"{source.name} has no rows.")
    recorded = layouts.completions > 0
    if not recorded and fields.completion != "completion":
        raise UsageError(f"no row of {source.name} has the field {fields.completion!r} (--completion-field).")
    wants = [(spec.name, each) for spec in specs for each in (spec.wants, spec.finish) if each is not None]
    columns = {name: name for name in layouts.names if name not in fields.taken | _RESERVED}
    columns.update(fields.columns)
    prompt = fields.prompt or "prompt"
    prompts = layouts.lacking(prompt) is None
    asked = fields.prompt is not None or any({"prompt", "prompts"} & set(each.required) for _, each in wants)
    if asked or prompt in layouts.names:
        _require_all(layouts, prompt, "the prompt", "--prompt-field FIELD")
    wanted = _wanted(wants, columns, layouts)
    for column, name in fields.columns.items():
        _require_all(layouts, name, f"--map {column}={name}", f"--map {column}=FIELD")
        if column not in wanted and rollouts:
            raise UsageError(f"--map {column}={name}: no reward function takes a column {column!r}.")
    if not rollouts:
        wanted = {name: field for name, field in columns.items() if name not in _MADE} | wanted
    completion = fields.completion if recorded else None
    return FieldMapping(layouts.rows, layouts.completions, completion, prompt if prompts else None, wanted)


class _RowLayouts:
    """The distinct sets of fields in the rows, with the first row of each."""

    def __init__(self, source: InputFile) -> None:
        self.rows = 0
        self.completions = 0
        self.source = source
        self._first: dict[tuple[str, ...], int] = {}

    def add(self, names: tuple[str, ...], place: int) -> None:
        self.rows += 1
        self._first.setdefault(names, place)

    @property
    def names(self) -> dict[str, None]:
        return {name: None for layout in self._first for name in layout}

    def lacking(self, name: str) -> int | None:
        """The first row without the field; None if all rows have it."""
        return min((place for layout, place in self._first.items() if name not in layout), default=None)


def _survey(source: InputFile, fields: FieldOptions, *, rollouts: bool) -> _RowLayouts:
    layouts = _RowLayouts(source)
    paths = [name for name in fields.taken if "." in name]
    for row in source.rows(strict=True):
        completion = find(row.fields, fields.completion)
        there = completion is not ABSENT and (rollouts or completion is not None)
        layouts.completions += there
        if completion is ABSENT and rollouts:
            raise UsageError(
                f"{source.where(row.place)} has no field {fields.completion!r}. It has: {listed(row.fields)}. "
                "Name the field of the completion: --completion-field FIELD."
            )
        if there and not _is_completion(completion):
            raise UsageError(
                f"{source.where(row.place)}: {fields.completion!r} is {_shown(completion)}; expected a string or a list "
                "of messages."
            )
        found = tuple(path for path in paths if path not in row.fields and find(row.fields, path) is not ABSENT)
        layouts.add((*row.fields, *found), row.place)
    return layouts


def _wanted(wants: Sequence[tuple[str, Wants]], columns: dict[str, str], layouts: _RowLayouts) -> dict[str, str]:
    """The columns to submit: those that functions name, or all if one takes ``**row``."""
    wanted: dict[str, str] = {}
    for function, each in wants:
        for name in each.named:
            if name in columns:
                if name in each.reserved and name in (TEXT, f"{TEXT}s"):
                    raise UsageError(
                        f"reward function {function!r} asks for {name!r}, the completion as plain text, but the rows "
                        f"have a field of that name too. Rename the field: --map OTHER={columns[name]}."
                    )
                _require_all(layouts, columns[name], f"the column {name!r} of {function!r}", f"--map {name}=FIELD")
                wanted[name] = columns[name]
            elif name in each.required and name not in each.reserved:
                raise UsageError(
                    f"reward function {function!r} wants the column {name!r}, but no row of {layouts.source.name} "
                    f"has such a field. The rows have: {listed(layouts.names)}.{suggestion(name, columns)} Name "
                    f"the field: --map {name}=FIELD."
                )
    if any(each.row or each.everything for _, each in wants):
        wanted = {**columns, **wanted}
    for name in sorted(_ARGUMENTS & wanted.keys()):
        raise UsageError(f"the field {wanted[name]!r} has a reserved name. Rename it: --map NAME={wanted[name]}.")
    return wanted


def _require_all(layouts: _RowLayouts, name: str, what: str, option: str) -> None:
    place = layouts.lacking(name)
    if place is None:
        return
    if name not in layouts.names:
        raise UsageError(
            f"no row of {layouts.source.name} has the field {name!r} ({what}). The rows have: "
            f"{listed(layouts.names)}. Name it: {option}."
        )
    raise UsageError(
        f"{layouts.source.where(place)} has no field {name!r} ({what}), other rows have it. Add it, with null where "
        "there is no value."
    )


def _is_completion(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(message, dict) for message in value))


def _shown(value: object) -> str:
    return "a list whose items are not all messages" if isinstance(value, list) else json_type(value)


def listed(names: Iterable[str]) -> str:
    """Names for a message."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "") if shown else "no fields"


def suggestion(name: str, names: Iterable[str]) -> str:
    """The name that is close to `name`, as a sentence."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
