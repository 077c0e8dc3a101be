"""Functions whose calls are several requests, as the engine takes them: criteria, comparisons,
cases.

- Members have one limit, key and fleet, and each its prompt and parser; a sample's columns are
  shared by all.
- A criterion of a rubric is a separate function, whose cells the requests of the first one fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from guerdon._functions.policy import Policy
from guerdon._functions.signature import Wants
from guerdon._functions.spec import FunctionSpec, Shape
from guerdon._lanes.http.plan import Plan
from guerdon._lanes.http.reward import HttpReward
from guerdon._lanes.http.template import Field
from guerdon.errors import RegistrationError
from guerdon.limits import native

if TYPE_CHECKING:
    from guerdon._functions.conditions import Conditions
    from guerdon._functions.lane_plan import Keys
    from guerdon._lanes.http.body import Piece

__all__ = ["CompoundPlan", "CompoundReward", "Criterion", "Member"]


@dataclass(frozen=True)
class Member:
    """Requests of one kind.

    Attributes:
        name: That of its column.
        plan: How its requests look and are read; its body numbers the columns of all members.
        spec: The function that it was made from: its timeout, retries and limit hold.
    """

    name: str
    plan: Plan
    spec: FunctionSpec


@dataclass(frozen=True, eq=False)
class CompoundPlan:
    """Plan that turns the calls of one function into several requests.

    Attributes:
        kind: ``"criteria"``, ``"rubric"`` or ``"cases"``.
        members: They share the spec of the first, its limit and its endpoints.
        fields: The columns of all of them, by number.
        settings: Those of the kind, for the engine.
    """

    kind: str
    members: tuple[Member, ...]
    fields: tuple[Field, ...]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, members: Sequence[tuple[str, HttpReward]], **settings: Any) -> CompoundPlan:
        """The plan of these members, which have the same options, one limit and one fleet."""
        fields: list[Field] = []
        made = []
        first = members[0][1].spec
        for name, member in members:
            plan = plan_of(member)
            places = []
            for field in plan.fields:
                if field not in fields:
                    fields.append(field)
                places.append(fields.index(field))
            made.append(Member(name, replace(plan, body=_renumbered(plan.body, places)), first))
        return cls(kind, tuple(made), tuple(fields), settings)

    def check(self, function: str) -> None:
        """Checks the requests of its members, without reading their keys.

        Raises:
            RegistrationError: An option is wrong.
        """
        for member in self.members:
            member.plan.check(function)

    def config(self, function: str, positions: Mapping[str, int], keys: Keys | None) -> dict[str, Any]:
        """Returns the form for the engine of a function that sends requests."""
        spec = self.members[0].spec
        policy, tariff = spec.policy, spec.tariff()
        rules = {
            "timeout": policy.timeout,
            "grace": 0.0,
            "setup_timeout": policy.timeout,
            "retries": policy.retries,
            "concurrency": spec.concurrency,
            "limit": native(policy.limit, "http", spec.concurrency),
        }
        members = [member.plan.config(function, keys, tariff) for member in self.members]
        return {"leads": {"kind": {self.kind: self.settings}, "members": members, "rules": rules}}


@dataclass(frozen=True, eq=False)
class Criterion:
    """A column that the requests of another function fill.

    Attributes:
        leader: That function's name.
        column: Which of its columns, from 1; 0 is the leader's own.
        requests: Of a request for this column alone, how it looks; what it used counts here.
    """

    leader: str
    column: int
    requests: Plan | None = None

    fields: tuple[Field, ...] = ()

    def config(self, function: str, positions: Mapping[str, int], keys: Keys | None) -> dict[str, Any]:
        """Returns the position of the function that sends its requests, and the column.

        Raises:
            RegistrationError: That one is not in the list.
        """
        if self.leader not in positions:
            raise RegistrationError(f"{function!r} is a column of a rubric: put the rubric itself into the list.")
        return {"follows": (positions[self.leader], self.column)}


class CompoundReward(HttpReward):
    """A reward function whose calls are several requests: made by `guerdon.rubric`.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    def __init__(
        self,
        made: tuple[Callable[..., HttpReward], dict[str, Any]],
        name: str,
        plan: CompoundPlan | Criterion,
        policy: Policy,
        *,
        columns: Sequence[str] = (),
        shape: Shape = "sample",
        run_if: Conditions | None = None,
    ) -> None:
        self._made = made
        if isinstance(plan, CompoundPlan):
            plan.check(name)
        self.spec = FunctionSpec(
            name=name,
            item=self,
            target=self,
            lane="http",
            shape=shape,
            policy=policy,
            wants=Wants(required=tuple(dict.fromkeys(columns))),
            is_async=True,
            decorated=True,
            http=plan.members[0].plan if isinstance(plan, CompoundPlan) else plan.requests,
            run_if=run_if,
            compound=plan,
        )
        self.__name__ = name

    def __repr__(self) -> str:
        plan = self.spec.compound
        if not isinstance(plan, CompoundPlan):
            return f"<criterion {self.name!r}>"
        place = repr(plan.members[0].spec.item).split(": ", 1)[1][:-1]
        return f"<{plan.kind} {self.name!r}: {place}>"


def plan_of(member: HttpReward) -> Plan:
    """Returns the plan of its requests; it is one request a call."""
    plan = member.spec.http
    if plan is None:
        raise RegistrationError(
            f"reward function {member.name!r}: expected a parser of guerdon.parse: its answers are not read by a function."
        )
    assert isinstance(plan, Plan)
    return plan


def _renumbered(body: list[Piece], places: Sequence[int]) -> list[Piece]:
    """Returns a body whose columns have other indices."""

    def moved(piece: Piece) -> Piece:
        if isinstance(piece, bytes):
            return piece
        if isinstance(piece, list):
            return _renumbered(piece, places)
        kind, column = piece
        return kind, column if kind == "repair" else places[column]

    return [moved(piece) for piece in body]
