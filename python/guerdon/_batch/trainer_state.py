"""The trainer's state as reward functions see it.

A batch has one snapshot, taken when it is submitted or opened: a trainer that goes on meanwhile
changes nothing in it. On the thread and asyncio lanes that is a copy of the trainer's object. A
worker gets the fields in a plain namespace, so that workers need not import the trainer's library.
``log_history``, which grows with every step, is included only if the function's code names it;
otherwise reading it is an AttributeError, never an empty list.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from guerdon._functions.callables import code_mentions
from guerdon._system.units import integer

HISTORY = "log_history"


@dataclass(frozen=True)
class StepAlone:
    """Replaces a state, for a trainer that has none to show: rows have its step, and functions see
    nothing of it.

    Attributes:
        global_step: As in a trainer's state; None: not known.
    """

    global_step: int | None


def frozen(state: object) -> object:
    """Returns a copy of `state` as it is now. Objects without the fields of a trainer's state are
    returned unchanged, and a step alone is never shown to a function."""
    if isinstance(state, StepAlone):
        return None
    fields = _fields(state)
    if fields is None:
        return state
    now = copy.copy(state)
    setattr(now, HISTORY, list(fields[HISTORY]))  # the one field that a trainer appends to
    return now


def step_of(state: object) -> int | None:
    """The training step that a trainer's state names, as ``global_step``; None without one."""
    if state is None:
        return None
    step = state.get("global_step") if isinstance(state, Mapping) else getattr(state, "global_step", None)
    found = integer(step)
    return found if found is not None and 0 <= found < 1 << 63 else None


def snapshot(state: object, *, history: bool) -> object:
    """Returns the parts of `state` that are sent; objects without the fields of a trainer's state
    are sent unchanged."""
    fields = _fields(state)
    if fields is None:
        return state
    return types.SimpleNamespace(**{name: value for name, value in fields.items() if history or name != HISTORY})


def names_history(target: Any) -> bool:
    """Returns whether the code of `target` (function, partial, method, callable object,
    `StatefulReward`) names ``log_history``."""
    return code_mentions(target, HISTORY)


def _fields(state: object) -> dict[str, Any] | None:
    fields = getattr(state, "__dict__", None)
    return fields if isinstance(fields, dict) and isinstance(fields.get(HISTORY), list) else None
