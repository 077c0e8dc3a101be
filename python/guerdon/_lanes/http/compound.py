"""Functions whose calls are several requests, as the engine takes them: cases.

Members have one limit, key and fleet; a sample's columns are shared by all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.http.plan import Plan
from guerdon._lanes.http.template import Field
from guerdon.limits import native

if TYPE_CHECKING:
    from guerdon._functions.lane_plan import Keys

__all__ = ["CompoundPlan", "Member"]


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
        kind: ``"cases"``.
        members: They share the spec of the first, its limit and its endpoints.
        fields: The columns of all of them, by number.
        settings: Those of the kind, for the engine.
    """

    kind: str
    members: tuple[Member, ...]
    fields: tuple[Field, ...]
    settings: Mapping[str, Any]

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
