"""Guerdon: run the reward functions of RL post-training concurrently, in order, with deadlines that
hold.

>>> from guerdon import Dispatcher, reward
>>> @reward(timeout=2.0)
... def correct(completion: str, answer: str) -> float:
...     return float(completion == answer)

This module holds only the map of public names. Each is imported when first used, so that
``import guerdon`` loads neither NumPy nor asyncio nor cloudpickle nor torch, and costs a worker
that imports a reward function's module next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon import parse, rewards
    from guerdon._batch.pending import OpenBatch, PendingBatch
    from guerdon._functions.cache_folder import Cache
    from guerdon._functions.stateful import StatefulReward
    from guerdon._functions.votes import Votes
    from guerdon._insight.dump import Dump, InFlight
    from guerdon._insight.endpoint import Endpoint
    from guerdon._insight.journal.options import Journal, read_journal
    from guerdon._insight.trace import Trace
    from guerdon._lanes.http.endpoints import Endpoints
    from guerdon._lanes.http.server import Server
    from guerdon._lanes.recycling import Recycle
    from guerdon._lanes.remote.ray.options import Ray
    from guerdon._native import __version__
    from guerdon._replay import ReplayResult, replay
    from guerdon.dispatcher import Dispatcher
    from guerdon.errors import (
        ClosedError,
        DataError,
        GuerdonError,
        GuerdonWarning,
        MainGuardError,
        QuietRewardWarning,
        RegistrationError,
        RewardFailureError,
        SerializationError,
        ToolError,
    )
    from guerdon.functions import RewardFunction, group_reward, reward
    from guerdon.judges import http_reward, judge
    from guerdon.limits import Limit, RetryAfter
    from guerdon.panels import Rubric, cascade, pairwise, panel, rubric
    from guerdon.results import Failure, Group, RewardBatch, SampleResult
    from guerdon.results.status import Status
    from guerdon.rewards.code.factory import code_reward
    from guerdon.rewards.code.remote.sandbox_fusion import SandboxFusion

__all__ = [
    "Cache",
    "ClosedError",
    "DataError",
    "Dispatcher",
    "Dump",
    "Endpoint",
    "Endpoints",
    "Failure",
    "Group",
    "GuerdonError",
    "GuerdonWarning",
    "InFlight",
    "Journal",
    "Limit",
    "MainGuardError",
    "OpenBatch",
    "PendingBatch",
    "QuietRewardWarning",
    "Ray",
    "Recycle",
    "RegistrationError",
    "ReplayResult",
    "RetryAfter",
    "RewardBatch",
    "RewardFailureError",
    "RewardFunction",
    "Rubric",
    "SampleResult",
    "SandboxFusion",
    "SerializationError",
    "Server",
    "StatefulReward",
    "Status",
    "ToolError",
    "Trace",
    "Votes",
    "__version__",
    "cascade",
    "code_reward",
    "group_reward",
    "http_reward",
    "judge",
    "pairwise",
    "panel",
    "parse",
    "read_journal",
    "replay",
    "reward",
    "rewards",
    "rubric",
]

_HOMES: Final[dict[str, str | None]] = {
    "Cache": "_functions.cache_folder",
    "ClosedError": "errors",
    "DataError": "errors",
    "Dispatcher": "dispatcher",
    "Dump": "_insight.dump",
    "Endpoint": "_insight.endpoint",
    "Endpoints": "_lanes.http.endpoints",
    "Failure": "results",
    "Group": "results",
    "GuerdonError": "errors",
    "GuerdonWarning": "errors",
    "InFlight": "_insight.dump",
    "Journal": "_insight.journal.options",
    "Limit": "limits",
    "MainGuardError": "errors",
    "QuietRewardWarning": "errors",
    "Ray": "_lanes.remote.ray.options",
    "Recycle": "_lanes.recycling",
    "Trace": "_insight.trace",
    "RegistrationError": "errors",
    "ReplayResult": "_replay",
    "RetryAfter": "limits",
    "StatefulReward": "_functions.stateful",
    "RewardBatch": "results",
    "RewardFailureError": "errors",
    "RewardFunction": "functions",
    "SampleResult": "results",
    "SerializationError": "errors",
    "Server": "_lanes.http.server",
    "Status": "results.status",
    "OpenBatch": "_batch.pending",
    "PendingBatch": "_batch.pending",
    "ToolError": "errors",
    "Votes": "_functions.votes",
    "__version__": "_native",
    "cascade": "panels",
    "code_reward": "rewards.code.factory",
    "SandboxFusion": "rewards.code.remote.sandbox_fusion",
    "group_reward": "functions",
    "judge": "judges",
    "pairwise": "panels",
    "panel": "panels",
    "Rubric": "panels",
    "rubric": "panels",
    "parse": None,
    "rewards": None,
    "http_reward": "judges",
    "read_journal": "_insight.journal.options",
    "replay": "_replay",
    "reward": "functions",
}

__getattr__, __dir__ = _names(globals(), _HOMES)
