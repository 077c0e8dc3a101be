"""The trainer's state as reward functions see it.

On the thread and asyncio lanes that is the trainer's own object. A worker gets a snapshot of its
fields in a plain namespace: no worker has to import the trainer's library to read
``trainer_state.global_step``. The snapshot leaves out ``log_history``, which grows with every step,
unless the function's code names it; otherwise reading it is an AttributeError, never an empty list.
"""

from __future__ import annotations

import types
from typing import Any

from guerdon._registration.callables import code_mentions

HISTORY = "log_history"


def snapshot(state: object, *, history: bool) -> object:
    """What is shipped of `state`; what doesn't look like a trainer's state is shipped as it is."""
    fields = getattr(state, "__dict__", None)
    if not isinstance(fields, dict) or not isinstance(fields.get(HISTORY), list):
        return state
    return types.SimpleNamespace(**{name: value for name, value in fields.items() if history or name != HISTORY})


def names_history(target: Any) -> bool:
    """Whether the code of `target` (function, partial, method, callable object, `StatefulReward`)
    names ``log_history``."""
    return code_mentions(target, HISTORY)
