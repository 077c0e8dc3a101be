"""Routes each group to one of verl's reward workers, which puts it together.

verl gives a response to any worker. The same group goes to the same worker, by a hash that is the
same in every process; a response is sent on at most once, with its position, so that the order does
not depend on the route. Workers are Ray actors named ``reward_loop_worker_<index>``, asked by the
method that verl calls, ``compute_score``; tests/verl fails where verl changes either.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import Any, Final

from guerdon.integrations.verl.groups import Position

__all__ = ["WorkerRouting"]

_NAME: Final = re.compile(r"reward_loop_worker_(\d+)")
_POSITION: Final = "guerdon_position"


class WorkerRouting:
    """This reward worker's place among the others, and the way to them.

    Args:
        workers: ``reward.num_workers``.
    """

    def __init__(self, workers: int) -> None:
        self.index = _worker_index()
        self._workers = workers
        self._handles: dict[int, Any] = {}
        self._count = 0

    def owner(self, key: object) -> int:
        """Index of the worker that puts the group `key` together."""
        if self.index is None:
            return 0
        return zlib.crc32(str(key).encode()) % self._workers

    def owns(self, key: object) -> bool:
        return self.index is None or self.owner(key) == self.index

    def position(self, data: Any) -> Position:
        """The position of a response that came now: the sender's, else verl's number of it, else
        the worker and count of its arrival.
        """
        sent = data.meta_info.get(_POSITION)
        if sent is not None:
            return tuple(sent)
        session = data.non_tensor_batch.get("session_id")
        if session is not None:
            return (int(session[-1]),)
        self._count += 1
        return (self.index or 0, self._count)

    async def send(self, key: object, position: Position, data: Any) -> dict[str, Any]:
        """The reward output of this response, from the owner of the group `key`."""
        owner = self.owner(key)
        handle = self._handles.get(owner)
        if handle is None:
            import ray

            handle = self._handles[owner] = await asyncio.to_thread(ray.get_actor, f"reward_loop_worker_{owner}")
        sent = data[-1:]
        sent.meta_info = {**data.meta_info, _POSITION: list(position)}
        answer: dict[str, Any] = await handle.compute_score.remote(sent)
        return answer


def _worker_index() -> int | None:
    """The number in this worker's name; None outside verl's reward workers."""
    import ray

    if not ray.is_initialized():
        return None
    found = _NAME.fullmatch(ray.get_runtime_context().get_actor_name() or "")
    return int(found[1]) if found else None
