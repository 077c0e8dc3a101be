"""Facts about a dispatcher for the metadata of each journal part: a JSON object under
``guerdon.dispatcher``. A table that someone made of a journal may have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from guerdon._insight.journal.schema import DISPATCHER_KEY, json_object

__all__ = ["DispatcherFacts", "facts_text"]


@dataclass(frozen=True)
class DispatcherFacts:
    """Those of one part.

    Attributes:
        incomplete: The dispatcher's option: what becomes of a sample on which a function failed.
    """

    incomplete: str = "drop"

    @classmethod
    def of(cls, schema: Any) -> DispatcherFacts:
        """Those of a part with this schema."""
        given = json_object((schema.metadata or {}).get(DISPATCHER_KEY))
        return cls(_incomplete(given))


def facts_text(incomplete: str) -> str:
    """Returns the facts that a journal records of a dispatcher."""
    return json.dumps({"incomplete": incomplete})


def _incomplete(given: Mapping[str, Any]) -> str:
    return "sum" if given.get("incomplete") == "sum" else "drop"
