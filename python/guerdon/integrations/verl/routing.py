"""Routes each group to one of verl's reward workers, which puts it together.

verl gives a response to any worker. The same group goes to the same worker, by a hash that is the
same in every process; a response is sent on at most once, with its origin, so that the order does
not depend on the route. Workers are Ray actors named ``reward_loop_worker_<index>``, asked by the
method that verl calls, ``compute_score``; tests/verl fails where verl changes either.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import warnings
import zlib
from collections.abc import Hashable
from typing import Any, Final

from guerdon.errors import GuerdonWarning
from guerdon.integrations.verl.origin import Origin

KEPT: Final = "guerdon_kept"
"""Part of an answer of one worker to another: groups that were answered."""
RECOVERY_S: Final = 60.0

_NAME: Final = re.compile(r"reward_loop_worker_(\d+)")
_ORIGIN: Final = "guerdon_origin"
_NUMBERS: Final = "guerdon_numbers"
_ASKS: Final = "guerdon_asks"


class WorkerRouting:
    """This reward worker's place among the others, and the way to them.

    Args:
        workers: ``reward.num_workers``.

    Attributes:
        index: This worker's, 0 outside verl's reward workers.
        restarted: It was lost before, and started again.
    """

    def __init__(self, workers: int) -> None:
        found = _worker_index()
        self._alone = found is None or workers == 1
        self.index = found or 0
        self.restarted = not self._alone and _was_restarted()
        self._workers = workers
        self._handles: dict[int, Any] = {}
        self._count = itertools.count()
        self._shared: bool | None = None

    def owner(self, key: object) -> int:
        """Index of the worker that puts the group `key` together."""
        return 0 if self._alone else zlib.crc32(str(key).encode()) % self._workers

    def owns(self, key: object) -> bool:
        return self._alone or self.owner(key) == self.index

    def origin(self, data: Any) -> Origin:
        """The origin of a response that came now: the sender's, else a new one."""
        sent = data.meta_info.get(_ORIGIN)
        if sent is not None:
            return Origin(*sent)
        session = data.non_tensor_batch.get("session_id")
        task = "" if self._alone or not self._counts(data) else _task_id()
        numbers = data.meta_info.setdefault(_NUMBERS, itertools.count()) if task else self._count
        return Origin(self.index, task, next(numbers), None if session is None else int(session[-1]))

    def _counts(self, data: Any) -> bool:
        """Returns whether responses can be numbered in their call: its slices share one dict of
        meta information, which is another one when the call is made again."""
        if self._shared is None:
            self._shared = data[-1:].meta_info is data.meta_info
        return self._shared

    async def send(self, key: object, origin: Origin, data: Any) -> dict[str, Any]:
        """The reward output of this response, from the owner of the group `key`; under `KEPT` it
        may have the whole group's."""
        sent = data[-1:]
        sent.meta_info = {name: value for name, value in data.meta_info.items() if name != _NUMBERS}
        sent.meta_info[_ORIGIN] = tuple(origin)
        answer: dict[str, Any] = await (await self._worker(self.owner(key))).compute_score.remote(sent)
        return answer

    async def kept_by_others(self) -> list[tuple[Hashable, bytes]]:
        """The groups of this worker that were answered before it was lost, as others have them."""
        others = [index for index in range(self._workers) if index != self.index]
        asked = {asyncio.ensure_future(self._ask(index)): index for index in others}
        await asyncio.wait(asked, timeout=RECOVERY_S)
        kept: list[tuple[Hashable, bytes]] = []
        for task, index in asked.items():
            if task.done() and task.exception() is None:
                kept += task.result()
                continue
            why = task.exception() if task.done() else f"no answer within {RECOVERY_S:g} s"
            task.cancel()
            warnings.warn(
                f"reward worker {self.index} was lost and started again, and reward worker {index} could not tell it which groups "
                f"were answered ({why}): a response of one that was may wait for +reward.reward_kwargs.group_timeout.",
                GuerdonWarning,
                stacklevel=2,
            )
        return kept

    @staticmethod
    def lost_worker(data: Any) -> int | None:
        """Index of the worker that asks this one for its groups; None for a response of verl's."""
        asks: int | None = data.meta_info.get(_ASKS)
        return asks

    async def _ask(self, index: int) -> list[tuple[Hashable, bytes]]:
        from verl import DataProto

        request = DataProto(meta_info={_ASKS: self.index})
        answer = await (await self._worker(index)).compute_score.remote(request)
        kept: list[tuple[Hashable, bytes]] = answer[KEPT]
        return kept

    async def _worker(self, index: int) -> Any:
        handle = self._handles.get(index)
        if handle is None:
            import ray

            handle = self._handles[index] = await asyncio.to_thread(ray.get_actor, f"reward_loop_worker_{index}")
        return handle


def _worker_index() -> int | None:
    """The number in this worker's name; None outside verl's reward workers."""
    import ray

    if not ray.is_initialized():
        return None
    found = _NAME.fullmatch(ray.get_runtime_context().get_actor_name() or "")
    return int(found[1]) if found else None


def _was_restarted() -> bool:
    import ray

    return bool(getattr(ray.get_runtime_context(), "was_current_actor_reconstructed", False))


def _task_id() -> str:
    """Ray's id of the call that brought this response."""
    import ray

    return ray.get_runtime_context().get_task_id() or ""
