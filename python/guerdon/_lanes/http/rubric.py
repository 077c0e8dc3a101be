"""A rubric: several columns of a result that one judge fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from guerdon._functions.policy import Policy
from guerdon._lanes.http.compound import CompoundPlan, CompoundReward, Criterion
from guerdon._lanes.http.reward import HttpReward

if TYPE_CHECKING:
    from guerdon._functions.conditions import Conditions

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
        plan: CompoundPlan,
        policy: Policy,
        criteria: Mapping[str, float],
        columns: Sequence[str],
        run_if: Conditions | None,
    ) -> None:
        self._made = made
        self.name = name
        self.weights = tuple(criteria.values())
        leader = f"{name}/{next(iter(criteria))}"
        own = [each.plan for each in plan.members] if plan.kind == "criteria" else [None] * len(criteria)
        plans: list[CompoundPlan | Criterion] = [
            plan,
            *(Criterion(leader, place, own[place]) for place in range(1, len(criteria))),
        ]
        self.columns: tuple[HttpReward, ...] = tuple(
            CompoundReward(
                (_column, {"rubric": self, "place": place}),
                f"{name}/{criterion}",
                each,
                policy if place == 0 else _uncounted(policy),
                columns=columns if place == 0 else (),
                run_if=run_if,
            )
            for place, (criterion, each) in enumerate(zip(criteria, plans, strict=True))
        )

    def __reduce__(self) -> tuple[Callable[..., Rubric], tuple[Any, ...]]:
        made_by, given = self._made
        return _remade, (made_by, given)

    def __repr__(self) -> str:
        return f"<rubric {self.name!r}: {', '.join(column.name for column in self.columns)}>"


def _uncounted(policy: Policy) -> Policy:
    """The policy of a column that makes no requests: nobody counts their tokens."""
    if policy.limit is None or not callable(policy.limit.tokens):
        return policy
    return replace(policy, limit=replace(policy.limit, tokens=None))


def _remade(made_by: Callable[..., Rubric], given: dict[str, Any]) -> Rubric:
    return made_by(**given)


def _column(rubric: Rubric, place: int) -> HttpReward:
    return rubric.columns[place]
