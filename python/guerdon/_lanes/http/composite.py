"""Judges asked several times, and panels, as items of a dispatcher's list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.http.reward import HttpReward

__all__ = ["CompositeReward"]


class CompositeReward(HttpReward):
    """A reward function whose calls are calls of others: made by `guerdon.panel`, and by
    `guerdon.judge` with ``votes=``.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    def __init__(self, made: tuple[Callable[..., HttpReward], dict[str, Any]], spec: FunctionSpec) -> None:
        self._made = made
        self.spec = replace(spec, item=self, target=self)
        self.__name__ = spec.name

    def __repr__(self) -> str:
        composition = self.spec.composition
        assert composition is not None
        if composition.kind == "panel":
            return f"<panel {self.name!r}: {len(composition.members)} members>"
        place = repr(composition.members[0].item).split(": ", 1)[1][:-1]
        return f"<votes {self.name!r}: {place}>"
