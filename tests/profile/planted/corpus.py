"""The corpus: functions with a planted bug, robust ones, and the rows they are audited on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon import reward

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class PlantedDefect:
    """A function with a bug, and the checks of which one must find it."""

    function: Any
    bug: str
    found_by: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True)
class Robust:
    """A function without one: no error and no warning may be found.

    Attributes:
        row_alone: It is called as many others are, with one row, and keeps nothing between calls:
            only the forms of answers that it takes are its own.
    """

    function: Any
    rows: Rows
    options: Mapping[str, Any]
    row_alone: bool


PLANTED: list[PlantedDefect] = []
ROBUST: list[Robust] = []


def planted(bug: str, *found_by: str, rows: Rows) -> Callable[[Any], Any]:
    """Enters a function with a bug."""

    def enter(function: Any) -> Any:
        PLANTED.append(PlantedDefect(function, bug, found_by, rows))
        return function

    return enter


def robust(rows: Rows, *, row_alone: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Enters a function without one."""

    def enter(function: Any) -> Any:
        ROBUST.append(Robust(function, rows, options, row_alone))
        return function

    return enter


def plant_expressions(rows: Rows, *bugs: tuple[str, str, Callable[..., Any]]) -> None:
    """Enters functions of one expression: the bug, which names the function, checks, function."""
    for bug, found_by, function in bugs:
        planted(bug, *found_by.split(), rows=rows)(reward(function, name=bug.replace(" ", "_")))


def name_of(entry: PlantedDefect | Robust) -> str:
    return str(getattr(entry.function, "name", None) or entry.function.__name__)
