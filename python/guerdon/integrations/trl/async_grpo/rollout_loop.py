"""Generation and scoring in the process that TRL spawns for them, with many groups scored at once.

Each group is sent on when its last reward is there, samples in order. The heartbeat shows that the
event loop runs, however long rewards, the server or the trainer take. A group that the trainer
would drop as too stale is not scored. An environment's reward is a column like the others. When the
loop is stopped, or its trainer is gone, it ends its tasks and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

from guerdon._batch.trainer.column import RewardColumn
from guerdon.errors import GuerdonError
from guerdon.integrations.trl.async_grpo.environment_rollouts import EnvironmentRollouts
from guerdon.integrations.trl.async_grpo.group_scores import GroupScorer, current_scores, weighted_column
from guerdon.integrations.trl.reward_funcs import dispatcher_of

_HEARTBEAT_S: Final = 1.0
_ENVIRONMENT: Final = frozenset(("environment", "environments"))


@dataclass(frozen=True)
class LoopOptions:
    """Options of our loop on top of TRL's arguments.

    Attributes:
        columns: The reward functions.
        concurrent_groups: How many groups are scored at once.
        max_staleness: Policy versions that a sample may be behind.
    """

    columns: tuple[RewardColumn, ...]
    concurrent_groups: int
    max_staleness: int

    def __reduce__(self) -> tuple[Callable[[bytes], LoopOptions], tuple[bytes]]:
        # By cloudpickle: functions of a script or a notebook travel by value, others by reference.
        import cloudpickle

        return _unpickled, (cloudpickle.dumps((self.columns, self.concurrent_groups, self.max_staleness)),)


def _unpickled(packed: bytes) -> LoopOptions:
    return LoopOptions(*pickle.loads(packed))


class RolloutLoop(EnvironmentRollouts, _AsyncRolloutLoop):  # type: ignore[misc]  # trl is not typed
    """TRL's rollout loop with rewards through dispatchers."""

    def __init__(self, *, guerdon: LoopOptions, **named: Any) -> None:
        self._options = guerdon
        super().__init__(**{**named, "reward_funcs": list(guerdon.columns)})
        self._scorer = GroupScorer(guerdon.columns)
        self.keeps_environments = bool(_named(guerdon.columns) & _ENVIRONMENT)
        count = len(guerdon.columns) + len(self.environment_kinds)
        self.reward_funcs = [functools.partial(weighted_column, index) for index in range(count)]
        self._scoring = 0  # groups in scoring

    def run(self) -> None:
        try:
            super().run()
        finally:
            for dispatcher in self._scorer.dispatchers:
                dispatcher.close()
            if _orphaned():  # at exit the queues would wait for a reader of their contents
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
            # Before TRL waits for its threads, which wait for calls of sync tools.
            self.close_tools_and_environments()

    async def _score_loop(self, stop_event: asyncio.Event) -> None:
        one = super()._score_loop
        await asyncio.gather(*(one(stop_event=stop_event) for _ in range(self._options.concurrent_groups)))

    async def _score_group(self, group: Any) -> list[Any]:
        if self.model_version - group.model_version > self._options.max_staleness:
            self._counters["guerdon/stale_groups_total"] += 1
            self.free_environments(group.completions)
            return []
        self._scoring += 1
        try:
            scored = await self._scorer.of(self.columns_of(group), len(group.completions))
        finally:
            self._scoring -= 1
        self._push_metrics({**scored.metrics, "guerdon/groups_scoring": float(self._scoring + 1)})
        self.add_environment_rewards(group.completions, scored)
        # Rewards of a user's own loop count if no function failed.
        group.rollout_rewards = [
            None if failed else reward for reward, failed in zip(group.rollout_rewards, scored.failed, strict=True)
        ]
        token = current_scores.set(scored)
        try:
            samples: list[Any] = await super()._score_group(group)
        finally:
            current_scores.reset(token)
        indices = [index for index, rows in enumerate(group.completions_sequences) for _ in rows]
        for sample, index in zip(samples, indices, strict=True):
            for name, values in zip(self.reward_func_names, scored.columns, strict=False):
                sample.metrics[f"rewards/{name}"] = float(values[index])
        return samples

    def columns_of(self, group: Any) -> dict[str, Any]:
        """Returns the columns of a group for reward functions, by name."""
        own = {"prompts": group.prompts, "completions": group.completions, "completion_ids": group.completions_ids}
        given = {**own, **group.reward_kwargs}
        if self.keeps_environments and self.environment_factories is not None:
            if self._multi_environment:
                given.pop("environment", None)  # the loop's key; the class tells it too
            given["environments"] = [self._ended[id(completion)].environment for completion in group.completions]
        return given

    async def _watch(self, stop_event: asyncio.Event) -> None:
        """Sends the heartbeat until the event is set.

        Raises:
            GuerdonError: The trainer's process is gone.
        """
        while not stop_event.is_set():
            self._heartbeat_value.value = time.time()
            if _orphaned():
                raise GuerdonError("the trainer that this rollout process worked for is gone.")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop_event.wait(), _HEARTBEAT_S)


def make_loop(own: type, **named: Any) -> RolloutLoop:
    """Our loop over one of the user's own, which may generate otherwise."""
    kind: type[RolloutLoop] = type(own.__name__, (RolloutLoop, own), {})
    return kind(**named)


def _named(columns: tuple[RewardColumn, ...]) -> set[str]:
    """The names that the functions behind `columns` ask for."""
    specs = (spec for column in columns for spec in dispatcher_of(column)._specs)
    return {name for spec in specs for name in (*spec.wants.named, *(spec.finish.named if spec.finish else ()))}


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels tasks until they end: a task may get its awaited value as it is cancelled, and go
    on."""
    left = tasks
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.2)
    await asyncio.gather(*tasks, return_exceptions=True)


def _orphaned() -> bool:
    """Returns whether the process that spawned this one is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
