"""A rubric: several columns of a result that one judge fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from guerdon._functions.signature import Wants
from guerdon._functions.spec import Composition
from guerdon._lanes.http.composite import CompositeReward
from guerdon._lanes.http.plan import Plan
from guerdon._lanes.http.reward import HttpReward
from guerdon.errors import RegistrationError

__all__ = ["Rubric"]


class Rubric:
    """An entry of a dispatcher's list that is several columns: made by `guerdon.rubric`.

    Attributes:
        name: What the names of its columns begin with.
        columns: A reward function for each criterion.
        weights: One for each of them.
    """

    __guerdon_columns__ = True

    def __init__(
        self,
        made: tuple[Callable[..., Rubric], dict[str, Any]],
        name: str,
        judges: Sequence[HttpReward],
        criteria: Mapping[str, float],
    ) -> None:
        """
        Args:
            name: What the names of the columns begin with.
            judges: One that scores by all criteria, or one for each of them, which differ in
                their prompts and parsers.
            criteria: Their weights, by name.
        """
        self._made = made
        self.name = name
        self.weights = tuple(criteria.values())
        names = tuple(f"{name}/{criterion}" for criterion in criteria)
        plan, *others = map(_plan_of, judges)
        plan = replace(plan, criteria=len(names) if not others else 1, others=tuple(others))
        judge = judges[0].spec
        member = replace(judge.as_member_of(names[0], names[0]), http=plan)
        self.columns: tuple[HttpReward, ...] = tuple(
            CompositeReward(
                (_column, {"rubric": self, "place": place}),
                replace(
                    judge.composed(
                        Composition("rubric", (name,), (member,), columns=names, place=place, in_turn=bool(others))
                    ),
                    name=column,
                    wants=judge.wants if place == 0 else Wants(),
                    pure=False,
                ),
            )
            for place, column in enumerate(names)
        )

    def __reduce__(self) -> tuple[Callable[..., Rubric], tuple[Any, ...]]:
        made_by, given = self._made
        return _remade, (made_by, given)

    def __repr__(self) -> str:
        return f"<rubric {self.name!r}: {', '.join(column.name for column in self.columns)}>"


def _plan_of(judge: HttpReward) -> Plan:
    plan = judge.spec.http
    if not isinstance(plan, Plan):
        raise RegistrationError(
            f"reward function {judge.name!r}: a rubric asks one judge for each score: fallback= is for others."
        )
    return plan


def _remade(made_by: Callable[..., Rubric], given: dict[str, Any]) -> Rubric:
    return made_by(**given)


def _column(rubric: Rubric, place: int) -> HttpReward:
    return rubric.columns[place]
