"""What the rows of a journal do not say of their dispatcher, in each part's metadata: a JSON object
under ``guerdon.dispatcher``. Parts of earlier versions have none, and earlier versions pass it
over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon._insight.journal.schema import DISPATCHER_KEY, json_object

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

__all__ = ["DispatcherFacts", "JudgeKind", "facts_text"]


@dataclass(frozen=True)
class JudgeKind:
    """How a function is judged by several answers.

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
        judges: Functions that are judged by several answers; None where the part doesn't say.
    """

    incomplete: str = "drop"
    judges: Mapping[str, JudgeKind] | None = None

    @classmethod
    def of(cls, schema: Any) -> DispatcherFacts:
        """Those of a part with this schema."""
        given = json_object((schema.metadata or {}).get(DISPATCHER_KEY))
        judges = given.get("judges")
        if not isinstance(judges, dict):
            return cls(_incomplete(given))
        known = {name: each for name, each in judges.items() if isinstance(each, dict)}
        return cls(_incomplete(given), {name: _judge(each) for name, each in known.items()})


def facts_text(specs: Iterable[FunctionSpec], incomplete: str) -> str:
    """What a journal records of a dispatcher with these functions."""
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
