"""Guerdon: run the reward functions of RL post-training concurrently, in order, with deadlines that hold.

>>> from guerdon import Dispatcher, reward
>>> @reward(timeout=2.0)
... def correct(completion: str, answer: str) -> float:
...     return float(completion == answer)

This module holds only the map of public names. Each is imported when first used, so that ``import guerdon`` loads
neither NumPy nor asyncio nor cloudpickle nor torch, and costs a worker that imports a reward function's module next to
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon.lazy import names as _names

if TYPE_CHECKING:
    from guerdon import parse
    from guerdon._native import __version__
    from guerdon.batching import Batch
    from guerdon.delivery import deadline, quorum
    from guerdon.dispatcher import Dispatcher
    from guerdon.dump import Dump, InFlight
    from guerdon.errors import (
        ClosedError,
        DataError,
        GuerdonError,
        GuerdonWarning,
        MainGuardError,
        NotYetError,
        RegistrationError,
        RewardFailureError,
        ShippingError,
        SnapshotError,
        ToolError,
    )
    from guerdon.judges import judge
    from guerdon.limits import Limit, RetryAfter
    from guerdon.recycle import Recycle
    from guerdon.remotes import remote
    from guerdon.result import Failure, Group, RewardBatch
    from guerdon.rewards import RewardFunction, group_reward, reward
    from guerdon.stateful import Reward
    from guerdon.status import Status
    from guerdon.ticket import Ticket

__all__ = [
    "Batch",
    "ClosedError",
    "DataError",
    "Dispatcher",
    "Dump",
    "Failure",
    "Group",
    "GuerdonError",
    "GuerdonWarning",
    "InFlight",
    "Limit",
    "MainGuardError",
    "NotYetError",
    "Recycle",
    "RegistrationError",
    "RetryAfter",
    "Reward",
    "RewardBatch",
    "RewardFailureError",
    "RewardFunction",
    "ShippingError",
    "SnapshotError",
    "Status",
    "Ticket",
    "ToolError",
    "__version__",
    "deadline",
    "group_reward",
    "judge",
    "parse",
    "quorum",
    "remote",
    "reward",
]

_HOMES: Final[dict[str, str | None]] = {
    "Batch": "batching",
    "ClosedError": "errors",
    "DataError": "errors",
    "Dispatcher": "dispatcher",
    "Dump": "dump",
    "Failure": "result",
    "Group": "result",
    "GuerdonError": "errors",
    "GuerdonWarning": "errors",
    "InFlight": "dump",
    "Limit": "limits",
    "MainGuardError": "errors",
    "NotYetError": "errors",
    "Recycle": "recycle",
    "RegistrationError": "errors",
    "RetryAfter": "limits",
    "Reward": "stateful",
    "RewardBatch": "result",
    "RewardFailureError": "errors",
    "RewardFunction": "rewards",
    "ShippingError": "errors",
    "SnapshotError": "errors",
    "Status": "status",
    "Ticket": "ticket",
    "ToolError": "errors",
    "__version__": "_native",
    "deadline": "delivery",
    "group_reward": "rewards",
    "judge": "judges",
    "parse": None,
    "quorum": "delivery",
    "remote": "remotes",
    "reward": "rewards",
}

__getattr__, __dir__ = _names(globals(), _HOMES)
