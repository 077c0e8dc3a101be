"""Facts about a dispatcher for the metadata of each journal part: a JSON object under
``guerdon.dispatcher``. A table that someone made of a journal may have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon._insight.journal.schema import DISPATCHER_KEY, json_object

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

__all__ = ["DispatcherFacts", "JudgeKind", "facts_text"]


@dataclass(frozen=True)
class JudgeKind:
    """Kind of a judge that combines several answers.

    Attributes:
        kind: ``"votes"``, ``"panel"``, ``"pairwise"`` and the like.
        members: Of a panel, as ``extra`` names what each gave.
    """

    kind: str
    members: Sequence[str] = ()


@dataclass(frozen=True)
class DispatcherFacts:
    """Those of one part.

    Attributes:
        incomplete: The dispatcher's option: what becomes of a sample on which a function failed.
        judges: Functions that are judged by several answers.
    """

    incomplete: str = "drop"
    judges: Mapping[str, JudgeKind] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Any) -> DispatcherFacts:
        """Those of a part with this schema."""
        given = json_object((schema.metadata or {}).get(DISPATCHER_KEY))
        judges = given.get("judges")
        known = judges.items() if isinstance(judges, dict) else ()
        return cls(_incomplete(given), {name: _judge(each) for name, each in known if isinstance(each, dict)})


def facts_text(specs: Iterable[FunctionSpec], incomplete: str) -> str:
    """Returns the facts that a journal records of a dispatcher with these functions."""
    judges: dict[str, dict[str, Any]] = {}
    for spec in specs:
        kind = getattr(spec.compound, "kind", None)
        if kind is not None:
            judges[spec.name] = {"kind": kind}
        if kind == "panel":
            judges[spec.name]["members"] = [member.name for member in getattr(spec.compound, "members", ())]
    return json.dumps({"incomplete": incomplete, "judges": judges}, ensure_ascii=False)


def _incomplete(given: Mapping[str, Any]) -> str:
    return "sum" if given.get("incomplete") == "sum" else "drop"


def _judge(given: Mapping[str, Any]) -> JudgeKind:
    members = given.get("members")
    return JudgeKind(str(given.get("kind")), [*map(str, members)] if isinstance(members, list) else [])
