"""Generation and scoring in the process that TRL spawns for them: TRL's loop, with many groups scored at once.

- R-1  Up to ``concurrent_groups`` groups are scored at a time; each is sent on when its last reward is there. Samples keep
       their order in a group.
- R-2  The heartbeat says that this process's event loop turns, however long rewards, the server or the trainer take.
- R-3  A group that the trainer would drop as too old is not scored.
- R-4  When it is told to stop, or its trainer is gone, it ends what is under way and leaves nothing behind.
- R-5  A reward that no number can be (an environment's NaN or infinity) takes its sample out of the group's baseline.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

from guerdon.column import RewardColumn
from guerdon.errors import GuerdonError
from guerdon.integrations.trl.asynchronous.calls import Tries, Trouble, VLLMCalls
from guerdon.integrations.trl.asynchronous.completions import Completions
from guerdon.integrations.trl.asynchronous.scores import Handover, Scored, Scores, current

_BEAT_S: Final = 1.0


@dataclass(frozen=True)
class LoopOptions:
    """What our loop is given beside TRL's arguments.

    Attributes:
        columns: The reward functions.
        concurrent_groups: How many groups are scored at once.
        calls: How the server is called.
        adapters: Folder of the policy's adapters, None where weights go by NCCL.
        max_staleness: Policy versions that a sample may be behind.
    """

    columns: tuple[RewardColumn, ...]
    concurrent_groups: int
    calls: VLLMCalls
    adapters: str | None
    max_staleness: int

    def __reduce__(self) -> tuple[Callable[[bytes], LoopOptions], tuple[bytes]]:
        # By cloudpickle, so that functions of a script or a notebook travel by value and the rest by reference.
        import cloudpickle

        return _opened, (
            cloudpickle.dumps((self.columns, self.concurrent_groups, self.calls, self.adapters, self.max_staleness)),
        )


def _opened(packed: bytes) -> LoopOptions:
    return LoopOptions(*pickle.loads(packed))


class RolloutLoop(_AsyncRolloutLoop):  # type: ignore[misc]  # trl is not typed
    """TRL's rollout loop with rewards through dispatchers."""

    def __init__(self, *, guerdon: LoopOptions, **named: Any) -> None:
        self._options = guerdon
        handovers = [Handover(column.__name__, index) for index, column in enumerate(guerdon.columns)]
        super().__init__(**{**named, "reward_funcs": handovers})
        self._scores = Scores(guerdon.columns)
        self._completions = Completions(self.vllm_server_url, guerdon.calls, guerdon.adapters, self._count)
        self._scoring = 0  # groups that are scored now

    def run(self) -> None:
        try:
            super().run()
        finally:
            for dispatcher in self._scores.dispatchers:
                dispatcher.close()
            if _orphaned():  # nobody reads what the queues still hold, and their ends at exit would wait for that
                for each in (self.rollout_buffer, self._metrics_queue, self._exception_info_queue):
                    each.cancel_join_thread()

    async def _run_loops(self, stop_event: asyncio.Event) -> None:
        work = asyncio.create_task(super()._run_loops(stop_event=stop_event))
        watch = asyncio.create_task(self._watch(stop_event))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, watch):
                if task.done():
                    task.result()
        finally:
            await _end(asyncio.all_tasks() - {asyncio.current_task()})

    async def _score_loop(self, stop_event: asyncio.Event) -> None:
        one = super()._score_loop
        await asyncio.gather(*(one(stop_event=stop_event) for _ in range(self._options.concurrent_groups)))

    async def _score_group(self, group: Any) -> list[Any]:
        if self.model_version - group.model_version > self._options.max_staleness:
            self._counters["guerdon/stale_groups_total"] += 1
            return []
        self._scoring += 1
        try:
            scored = await self._scores.of(self.columns_of(group), len(group.completions))
        finally:
            self._scoring -= 1
        self._push_metrics({**scored.metrics, "guerdon/groups_scoring": float(self._scoring + 1)})
        spared = self._without(group, scored)
        token = current.set(scored)
        try:
            samples: list[Any] = await super()._score_group(group)
        finally:
            current.reset(token)
        places = [place for place, rows in enumerate(group.completions_sequences) for _ in rows]
        for sample, place in zip(samples, places, strict=True):
            for column, values in zip(self._options.columns, scored.raw, strict=True):
                value = values[place]
                sample.metrics[f"rewards/{column.__name__}"] = math.nan if value is None else value
            sample.metrics.update(spared.get(place, {}))
        return samples

    def columns_of(self, group: Any) -> dict[str, Any]:
        """What reward functions get of a group, by name."""
        own = {"prompts": group.prompts, "completions": group.completions, "completion_ids": group.completions_ids}
        return {**own, **group.reward_kwargs}

    def _without(self, group: Any, scored: Scored) -> dict[int, dict[str, float]]:
        """Takes samples that have no reward out of every column, environments' too, which come to TRL by the group.

        Returns:
            By sample, what to log of an environment's reward that was a number.
        """
        spared: dict[int, dict[str, float]] = {}
        for place, reward in enumerate(group.env_rewards):
            if reward is None:
                continue
            name = reward[0].__name__
            if not _is_number(reward[1]):
                self._counters[f"guerdon/{name}/error_total"] += 1
                scored.fail(place)
            elif scored.failed[place]:
                spared[place] = {f"rewards/{name}": float(reward[1])}
        for place in (place for place, failed in enumerate(scored.failed) if failed):
            if group.env_rewards:
                group.env_rewards[place] = None
            group.rollout_rewards[place] = None
        return spared

    async def _post(self, path: str, payload: dict[str, Any], timeout: float, max_retries: int = 0) -> dict[str, Any]:
        calls = self._options.calls
        return await self._completions.post(
            self.session,
            path,
            lambda: {**payload, "model": self._request_model},
            timeout if calls.timeout is None else calls.timeout,
        )

    async def _watch(self, stop_event: asyncio.Event) -> None:
        """Beats (R-2), looks after the server, and is back when all is to end (R-4).

        Raises:
            VLLMServerError: The server is away for too long, or another one.
        """
        calls = self._options.calls
        looked = time.monotonic()
        tries = None
        async with aiohttp.ClientSession() as session:
            while not stop_event.is_set():
                self._heartbeat_value.value = time.time()
                if _orphaned():
                    raise GuerdonError("the trainer that this process worked for is gone.")
                if time.monotonic() - looked >= calls.health_interval:
                    try:
                        await self._completions.look(session)
                        tries = None
                    except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError) as error:
                        tries = tries or Tries(calls, f"GET {self.vllm_server_url}/metrics")
                        tries.again(Trouble(f"{type(error).__name__}: {error}"))
                    looked = time.monotonic()
                try:
                    await asyncio.wait_for(stop_event.wait(), _BEAT_S)
                except (TimeoutError, asyncio.TimeoutError):
                    continue

    def _count(self, name: str) -> None:
        self._counters[name] += 1


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels tasks until they have ended: a wait that ends as it is cancelled, with what it waited for, goes on."""
    left = tasks
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.2)
    await asyncio.gather(*tasks, return_exceptions=True)


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def _orphaned() -> bool:
    """Whether the process that spawned this one is gone; it can't have told us, if it was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
