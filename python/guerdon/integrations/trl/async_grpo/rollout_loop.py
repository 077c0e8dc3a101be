"""Generation and scoring in the process that TRL spawns for them: TRL's loop, with many groups scored at once.

- R-1  Up to ``concurrent_groups`` groups are scored at a time; each is sent on when its last reward is there. Samples keep
       their order in a group.
- R-2  The heartbeat says that this process's event loop turns, however long rewards, the server or the trainer take.
- R-3  A group that the trainer would drop as too old is not scored.
- R-4  When it is told to stop, or its trainer is gone, it ends what is under way and leaves nothing behind.
- R-5  An environment's reward is a column like the others; where there is none that is a number, the sample is out of the
       group's baseline.
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

from guerdon._trainer.column import RewardColumn
from guerdon.errors import GuerdonError
from guerdon.integrations.trl.async_grpo.completion_requests import Completions
from guerdon.integrations.trl.async_grpo.concurrent_calls import SideBySideLoop
from guerdon.integrations.trl.async_grpo.environment_rewards import Environments
from guerdon.integrations.trl.async_grpo.group_scores import Handover, Scored, Scores, current
from guerdon.integrations.trl.async_grpo.vllm_calls import Tries, Trouble, VLLMCalls
from guerdon.integrations.trl.reward_funcs import dispatcher_of

_BEAT_S: Final = 1.0
_ENVIRONMENT: Final = frozenset(("environment", "environments"))


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


class RolloutLoop(SideBySideLoop, _AsyncRolloutLoop):  # type: ignore[misc]  # trl is not typed
    """TRL's rollout loop with rewards through dispatchers."""

    _env_reward_types: list[type]  # TRL's: classes of environments that it asks for rewards

    def __init__(self, *, guerdon: LoopOptions, **named: Any) -> None:
        self._options = guerdon
        handovers = [Handover(column.__name__, index) for index, column in enumerate(guerdon.columns)]
        super().__init__(**{**named, "reward_funcs": handovers})
        self._scores = Scores(guerdon.columns)
        self._completions = Completions(self.vllm_server_url, guerdon.calls, guerdon.adapters, self._count)
        self._environments = Environments(
            self._env_reward_types,
            self.environment_factories is not None and bool(_named(guerdon.columns) & _ENVIRONMENT),
            self._tool_pool,
            self._count,
        )
        if self.environment_factories is not None:
            self._environments.watch(self.environment_factories, self._environment_pool)
            # Asked and summed here: to TRL they are functions.
            self._env_reward_types = []
            kinds = self._environments.kinds
            self.reward_funcs = [*handovers, *(Handover(k.__name__, len(handovers) + i) for i, k in enumerate(kinds))]
        self._scoring = 0  # groups that are scored now

    def run(self) -> None:
        try:
            super().run()
        finally:
            for dispatcher in self._scores.dispatchers:
                dispatcher.close()
            self.end_engines()
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
            self._environments.forget(group.completions)
            return []
        self._scoring += 1
        try:
            scored = await self._scores.of(self.columns_of(group), len(group.completions))
        finally:
            self._scoring -= 1
        self._push_metrics({**scored.metrics, "guerdon/groups_scoring": float(self._scoring + 1)})
        for column in self._of_environments(group, scored):
            scored.raw.append(column)
            scored.weighed.append(column)
        token = current.set(scored)
        try:
            samples: list[Any] = await super()._score_group(group)
        finally:
            current.reset(token)
        places = [place for place, rows in enumerate(group.completions_sequences) for _ in rows]
        for sample, place in zip(samples, places, strict=True):
            for name, values in zip(self.reward_func_names, scored.raw, strict=False):
                value = values[place]
                sample.metrics[f"rewards/{name}"] = math.nan if value is None else value
        return samples

    def columns_of(self, group: Any) -> dict[str, Any]:
        """What reward functions get of a group, by name."""
        own = {"prompts": group.prompts, "completions": group.completions, "completion_ids": group.completions_ids}
        given = {**own, **group.reward_kwargs}
        if self._environments.wanted:
            if self._multi_environment:
                given.pop(
                    "environment", None
                )  # which one it is was for the loop to know, and is in the snapshot's class
            given["environments"] = self._environments.snapshots_of(group.completions)
        return given

    def _of_environments(self, group: Any, scored: Scored) -> list[list[float | None]]:
        """A column for each class of environments that has rewards; a sample without the one it should have fails."""
        said = self._environments.rewards_of(group.completions)
        for place, reward in enumerate(said):
            if reward is not None and reward.value is None:
                scored.fail(place)
        return [
            [
                None if r is None or r.kind is not kind or out else r.value
                for r, out in zip(said, scored.failed, strict=True)
            ]
            for kind in self._environments.kinds
        ]

    def _generate_one(self, *args: Any, **named: Any) -> Any:
        generating = super()._generate_one(*args, **named)
        return generating if self.environment_factories is None else self._environments.rollout(generating)

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
                        trouble = await self._completions.look(session)
                    except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError) as error:
                        trouble = Trouble(f"{type(error).__name__}: {error}")
                    if trouble is None:
                        tries = None
                    else:
                        tries = tries or Tries(calls, f"GET {self.vllm_server_url}/metrics")
                        tries.again(trouble)
                    looked = time.monotonic()
                try:
                    await asyncio.wait_for(stop_event.wait(), _BEAT_S)
                except (TimeoutError, asyncio.TimeoutError):
                    continue

    def _count(self, name: str) -> None:
        self._counters[name] += 1


def _named(columns: tuple[RewardColumn, ...]) -> set[str]:
    """What the functions behind `columns` ask for by name."""
    specs = (spec for column in columns for spec in dispatcher_of(column).specs)
    return {name for spec in specs for name in (*spec.wants.named, *(spec.finish.named if spec.finish else ()))}


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels tasks until they have ended: a wait that ends as it is cancelled, with what it waited for, goes on."""
    left = tasks
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.2)
    await asyncio.gather(*tasks, return_exceptions=True)


def _orphaned() -> bool:
    """Whether the process that spawned this one is gone; it can't have told us, if it was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
