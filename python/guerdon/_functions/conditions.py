"""Conditions on rewards: ``run_if`` and ``otherwise`` of a function, ``accept`` of a cascade.

A wrong condition is refused where the function is made; `function_list` refuses those that don't
fit the other functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from guerdon._system.units import FLOAT32_MAX, number
from guerdon.errors import RegistrationError

__all__ = ["Condition", "Conditions", "RunIf", "checked_conditions", "checked_run_if"]

RunIf = Mapping[str, "str | Sequence[str]"]
"""Value of ``run_if``: conditions by the name of another function."""

_CONDITION: Final = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*")


class Condition(NamedTuple):
    """Condition on another function's reward for the same sample."""

    source: str
    comparison: str
    bound: float

    def native(self, positions: Mapping[str, int]) -> dict[str, Any]:
        """Returns the form for the engine, where the sources have these positions."""
        return {"source": positions[self.source], "comparison": self.comparison, "bound": self.bound}


@dataclass(frozen=True)
class Conditions:
    """When a function is called, and what its cells show where it is not.

    Attributes:
        conditions: All must hold.
        otherwise: What a skipped cell shows; None for nothing.
    """

    conditions: tuple[Condition, ...]
    otherwise: float | None = None

    def native(self, positions: Mapping[str, int]) -> dict[str, Any]:
        """Returns the form for the engine.

        Args:
            positions: Of the functions in their list, by name.
        """
        conditions = [one.native(positions) for one in self.conditions]
        return {"conditions": conditions, "otherwise": math.nan if self.otherwise is None else self.otherwise}


def checked_run_if(function: str, run_if: object, otherwise: object) -> Conditions | None:
    """The gate of a function; None where it has none.

    Raises:
        RegistrationError: ``run_if`` or ``otherwise`` is wrong.
    """
    if run_if is None:
        if otherwise is not None:
            raise RegistrationError(
                f"reward function {function!r}: otherwise={otherwise!r} is what a skipped sample gets, and only run_if= skips "
                "samples. Add run_if, or leave otherwise out; for failures there is on_failure=."
            )
        return None
    conditions = checked_conditions(function, "run_if", run_if, '{"correct": "< 1"}')
    if otherwise is None:
        return Conditions(conditions)
    value = number(otherwise)
    if not abs(value) <= FLOAT32_MAX:
        raise RegistrationError(
            f"reward function {function!r}: otherwise={otherwise!r}: expected None or a finite number that float32 can hold."
        )
    return Conditions(conditions, value)


def checked_conditions(function: str, option: str, given: object, example: str) -> tuple[Condition, ...]:
    """The conditions of an option, by function.

    Raises:
        RegistrationError: They are wrong; the message shows the example.
    """
    wrong = f"reward function {function!r}: {option}={given!r}"
    if not isinstance(given, Mapping) or not given:
        raise RegistrationError(f"{wrong}: expected conditions by function, as in {example}.")
    conditions: list[Condition] = []
    for source, of_source in given.items():
        texts = of_source if isinstance(of_source, (list, tuple)) and of_source else [of_source]
        for text in texts:
            match = _CONDITION.fullmatch(text) if isinstance(text, str) else None
            bound = _bound(match[2]) if match is not None else None
            if not isinstance(source, str) or match is None or bound is None:
                raise RegistrationError(
                    f"{wrong}: {text!r} is no condition. Expected <, <=, >, >=, == or != and a number, as in "
                    f"{example}, or a list of them."
                )
            conditions.append(Condition(source, match[1], bound))
    return tuple(conditions)


def _bound(text: str) -> float | None:
    if not text.isascii() or "_" in text:  # Python's own spellings of numbers
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) <= FLOAT32_MAX else None
