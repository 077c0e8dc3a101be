"""Starts the actors that hold agents.

The class is made once, and sent to nodes by value. Ray's switch for that is global to the process,
so only one thread at a time may have it on.
"""

from __future__ import annotations

import threading
from typing import Any, Final

__all__ = ["start_actor"]

_MOST_PENDING: Final = 16
_lock: Final = threading.Lock()
# Result of `ray.remote` for `AgentActor`; under the lock.
_kind: Any = None


def start_actor(node: str, cpus: int) -> Any:
    """Starts an actor; the answer to its first call shows whether it came up.

    Args:
        node: Ray's id of the node that it is for.
        cpus: So many it reserves.
    """
    global _kind
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from guerdon._lanes.remote.ray import actor

    with _lock:
        # Ray pickles the class with the first actor, once for each cluster that this process joins.
        ray.cloudpickle.register_pickle_by_value(actor)
        try:
            if _kind is None:
                _kind = ray.remote(concurrency_groups={"in": 1, "out": 1})(actor.AgentActor)
            return _kind.options(
                num_cpus=cpus,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=1,
                max_pending_calls=_MOST_PENDING,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            ).remote()
        finally:
            ray.cloudpickle.unregister_pickle_by_value(actor)
