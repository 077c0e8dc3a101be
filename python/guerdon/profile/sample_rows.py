"""Functions as entries of a dispatcher's list, and the rows that they are profiled on: columns of
equal length, groups contiguous."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from guerdon._functions.spec import FunctionSpec
from guerdon.errors import DataError

__all__ = ["Listed", "SampleRows", "checked_rows", "rows_of"]


class Listed:
    """A decorated function that `Dispatcher` takes, which is nothing but a spec."""

    __guerdon_decorated__ = True

    def __init__(self, spec: FunctionSpec) -> None:
        self.spec = spec
        self.__name__ = spec.name


@dataclass(frozen=True)
class SampleRows:
    """Rows to score.

    Attributes:
        completions: Texts or lists of messages.
        prompts: None if there are none.
        columns: All other columns, by name.
        num_generations: Completions of a group; the number of rows is a multiple of it.
    """

    completions: Sequence[Any]
    prompts: Sequence[Any] | None = None
    columns: dict[str, Sequence[Any]] = field(default_factory=dict)
    num_generations: int = 1

    def __len__(self) -> int:
        return len(self.completions)

    def batch(self) -> dict[str, Any]:
        """Keyword arguments of `Dispatcher.score`."""
        arguments: dict[str, Any] = {"completions": list(self.completions), "num_generations": self.num_generations}
        if self.prompts is not None:
            arguments["prompts"] = list(self.prompts)
        return {**arguments, **{name: list(values) for name, values in self.columns.items()}}

    def take(self, places: Iterable[int]) -> SampleRows:
        """The rows at these places; groups should stay whole."""
        chosen = list(places)
        size = self.num_generations if len(chosen) % self.num_generations == 0 else 1
        return replace(
            self,
            completions=[self.completions[place] for place in chosen],
            prompts=None if self.prompts is None else [self.prompts[place] for place in chosen],
            columns={name: [values[place] for place in chosen] for name, values in self.columns.items()},
            num_generations=size,
        )

    def with_completions(self, completions: Sequence[Any]) -> SampleRows:
        """The same rows with other completions."""
        return replace(self, completions=list(completions))

    def length(self, row: int) -> int:
        """Characters of a row's completion."""
        completion = self.completions[row]
        if isinstance(completion, str):
            return len(completion)
        try:
            return sum(len(str(message.get("content") or "")) for message in completion)
        except (AttributeError, TypeError):
            return len(json.dumps(completion, default=str))


_NOT_COLUMNS = frozenset({"prompt", "completion", "prompts", "completions", "num_generations", "trainer_state"})


def rows_of(rows: Sequence[Mapping[str, Any]], num_generations: int = 1) -> SampleRows:
    """Rows that are mappings, all with a ``completion``; a last group that is not whole is left
    out."""
    whole = rows[: max(num_generations, len(rows) // num_generations * num_generations)]
    size = num_generations if len(whole) % num_generations == 0 else 1
    names = dict.fromkeys(name for row in whole for name in row if name not in _NOT_COLUMNS)
    prompts = [row.get("prompt", "") for row in whole]
    columns: dict[str, Sequence[Any]] = {name: [row.get(name) for row in whole] for name in names}
    return SampleRows([row["completion"] for row in whole], prompts, columns, size)


def checked_rows(rows: object) -> tuple[Mapping[str, Any], ...]:
    """The rows, each a mapping of column names to values.

    Raises:
        DataError: They are something else, or there are none.
    """
    expected = "give a list of mappings, each with a prompt and the function's columns."
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise DataError(f"rows are {'one mapping' if isinstance(rows, Mapping) else type(rows).__name__}: {expected}")
    found = tuple(rows)
    if not found:
        raise DataError(f"an audit needs at least one row: {expected}")
    for place, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise DataError(f"row {place} is of type {type(row).__name__}: {expected} Of a data frame, its records.")
        strange = next((name for name in row if not isinstance(name, str)), "")
        if strange != "":
            raise DataError(f"row {place} has a column named {strange!r}: names of columns are strings.")
    return found
