"""verl's reward workers as peers: each group has one worker that puts it together, and the others send their responses on.

- P-1  The same group goes to the same worker, whichever got the response: by a hash that is the same in every process.
- P-2  A response is sent on once at most; its place says who got it and as which, so that the order does not depend on the way.

verl gives a response to any of its workers (streaming picks one at random, a batch is cut in equal pieces), so that a group may be
spread over all of them. The workers are Ray actors called ``reward_loop_worker_<index>``, and ``compute_score`` is the method that
verl itself calls; tests/verl guards both.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import Any, Final

from guerdon.integrations.verl.groups import Place

__all__ = ["Peers"]

_NAME: Final = re.compile(r"reward_loop_worker_(\d+)")
_PLACE: Final = "guerdon_place"


class Peers:
    """Who this reward worker is, and how it reaches the others.

    Args:
        workers: ``reward.num_workers``.
    """

    def __init__(self, workers: int) -> None:
        self.index = _own_index()
        self._workers = workers
        self._handles: dict[int, Any] = {}
        self._count = 0

    def owner(self, key: object) -> int:
        """Index of the worker that puts the group `key` together (P-1)."""
        if self.index is None:
            return 0
        return zlib.crc32(str(key).encode()) % self._workers

    def owns(self, key: object) -> bool:
        return self.index is None or self.owner(key) == self.index

    def place(self, data: Any) -> Place:
        """The place of a response that came just now: what the sender says, verl's own number of it where there is one, else where
        and as which it was given out (P-2)."""
        sent = data.meta_info.get(_PLACE)
        if sent is not None:
            return tuple(sent)
        session = data.non_tensor_batch.get("session_id")
        if session is not None:
            return (int(session[-1]),)
        self._count += 1
        return (self.index or 0, self._count)

    async def send(self, key: object, place: Place, data: Any) -> dict[str, Any]:
        """What the owner of the group `key` answers for this response."""
        owner = self.owner(key)
        handle = self._handles.get(owner)
        if handle is None:
            import ray

            handle = self._handles[owner] = await asyncio.to_thread(ray.get_actor, f"reward_loop_worker_{owner}")
        sent = data[-1:]
        sent.meta_info = {**data.meta_info, _PLACE: list(place)}
        answer: dict[str, Any] = await handle.compute_score.remote(sent)
        return answer


def _own_index() -> int | None:
    """The number in this worker's name; None outside of verl's reward workers, where there are no others."""
    import ray

    if not ray.is_initialized():
        return None
    found = _NAME.fullmatch(ray.get_runtime_context().get_actor_name() or "")
    return int(found[1]) if found else None
