"""Gates: ``run_if`` and ``otherwise`` of a function, and whether those of a list fit together.

A wrong condition is refused where the function is made; a source that the list lacks, that scores
whole groups or batches, or that waits for the gated function itself, where the dispatcher is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from guerdon._system.units import FLOAT32_MAX, number
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

__all__ = ["Condition", "Conditions", "RunIf", "checked_run_if", "refuse_impossible_conditions"]

RunIf = Mapping[str, "str | Sequence[str]"]
"""What ``run_if`` takes: conditions by the name of another function."""

_CONDITION: Final = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*")


class Condition(NamedTuple):
    """What another function must have given for the same sample."""

    source: str
    comparison: str
    bound: float


@dataclass(frozen=True)
class Conditions:
    """When a function is called, and what its cells show where it is not.

    Attributes:
        conditions: All must hold.
        otherwise: What a skipped cell shows; None for nothing.
    """

    conditions: tuple[Condition, ...]
    otherwise: float | None = None

    def native(self, positions: Mapping[str, int]) -> tuple[list[tuple[int, str, float]], float | None]:
        """As the engine takes it.

        Args:
            positions: Of the functions in their list, by name.
        """
        return [(positions[one.source], one.comparison, one.bound) for one in self.conditions], self.otherwise


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
    wrong = f"reward function {function!r}: run_if={run_if!r}"
    if not isinstance(run_if, Mapping) or not run_if:
        raise RegistrationError(f'{wrong}: expected conditions by function, as in {{"correct": "< 1"}}.')
    conditions: list[Condition] = []
    for source, given in run_if.items():
        texts = given if isinstance(given, (list, tuple)) and given else [given]
        for text in texts:
            match = _CONDITION.fullmatch(text) if isinstance(text, str) else None
            bound = _bound(match[2]) if match is not None else None
            if not isinstance(source, str) or match is None or bound is None:
                raise RegistrationError(
                    f"{wrong}: {text!r} is no condition. Expected <, <=, >, >=, == or != and a number, as in "
                    '{"correct": "< 1"}, or a list of them.'
                )
            conditions.append(Condition(source, match[1], bound))
    if otherwise is None:
        return Conditions(tuple(conditions))
    value = number(otherwise)
    if not abs(value) <= FLOAT32_MAX:
        raise RegistrationError(
            f"reward function {function!r}: otherwise={otherwise!r}: expected None or a finite number that float32 can hold."
        )
    return Conditions(tuple(conditions), value)


def _bound(text: str) -> float | None:
    if not text.isascii() or "_" in text:  # Python's own spellings of numbers
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) <= FLOAT32_MAX else None


def refuse_impossible_conditions(specs: Sequence[FunctionSpec]) -> None:
    """Refuse gates that can't work between these functions.

    Raises:
        RegistrationError: With the names.
    """
    known = {spec.name: spec for spec in specs}
    for spec in specs:
        for condition in spec.run_if.conditions if spec.run_if is not None else ():
            source = known.get(condition.source)
            if source is None:
                names = ", ".join(map(repr, known))
                raise RegistrationError(
                    f"reward function {spec.name!r}: run_if names {condition.source!r}, which is no function of this "
                    f"dispatcher: {names}."
                )
            if source.shape != "sample":
                raise RegistrationError(
                    f"reward function {spec.name!r}: run_if names {source.name!r}, which scores {_whole(source)} at once, so "
                    "there is no score of one sample to wait for. Name a function of single samples, or make it one: "
                    f"{_instead(source)}."
                )
            if spec.shape != "sample":
                raise RegistrationError(
                    f"reward function {spec.name!r} scores {_whole(spec)} at once, so run_if can't skip samples of it. Make it "
                    f"one of single samples: {_instead(spec)}."
                )
    _refuse_cycles(known)


def _whole(spec: FunctionSpec) -> str:
    return "a whole group" if spec.shape == "group" else "a whole batch"


def _instead(spec: FunctionSpec) -> str:
    return "@reward, with finish_group of a StatefulReward" if spec.shape == "group" else "reward(…, rowwise=True)"


def _refuse_cycles(known: Mapping[str, FunctionSpec]) -> None:
    sources = {
        name: list(dict.fromkeys(one.source for one in spec.run_if.conditions)) if spec.run_if is not None else []
        for name, spec in known.items()
    }
    decided: set[str] = set()
    while fresh := {name for name, of in sources.items() if name not in decided and decided.issuperset(of)}:
        decided |= fresh
    stuck = next((name for name in sources if name not in decided), None)
    if stuck is None:
        return
    chain = [stuck]
    while True:
        following = next(name for name in sources[chain[-1]] if name not in decided)
        if following in chain:
            cycle = [*chain[chain.index(following) :], following]
            raise RegistrationError(
                f"the run_if of these reward functions wait for each other, so none of them could run: "
                f"{' -> '.join(map(repr, cycle))}. Leave one of the conditions out."
            )
        chain.append(following)
