"""The rollout loops of TRL's asynchronous trainer and of ours, here, without a trainer."""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

# A warning at the import of what these tests are about
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from accelerate import PartialState
from trl.experimental.async_grpo import AsyncGRPOTrainer as TRLAsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    RolloutGroup,
    TrainingSequence,
    _AsyncRolloutLoop,
)

from guerdon import Dispatcher
from guerdon.integrations.trl import AsyncGRPOTrainer
from guerdon.integrations.trl.async_grpo import rollout_process
from guerdon.integrations.trl.async_grpo.rollout_loop import LoopOptions, RolloutLoop
from guerdon.integrations.trl.async_grpo.trainer import _with_workers_own
from tests.integrations.trl.tiny_trainer import make_data, make_tokenizer

# All that imports trl's experimental parts, in one place.
__all__ = [
    "AsyncGRPOTrainer",
    "AsyncRolloutWorker",
    "LoopOptions",
    "RolloutLoop",
    "SpeakingLoop",
    "TRLAsyncGRPOTrainer",
    "TRLRolloutLoop",
    "_with_workers_own",
    "rollout_process",
]
TRLRolloutLoop = _AsyncRolloutLoop


class SpeakingLoop(RolloutLoop):
    """Says letters by chance instead of asking a server."""

    slow_s = 0.0  # of a completion
    asked = 0

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        self.asked += 1
        await asyncio.sleep(self.slow_s)
        ids = [97 + random.randrange(26) for _ in range(self.max_tokens - 1)]
        return [*ids, self.tokenizer.eos_token_id], [-1.0] * self.max_tokens


def shared() -> dict[str, Any]:
    """Objects that the two processes share, here plain ones."""
    return {
        "rollout_buffer": queue.Queue(),
        "model_version_value": SimpleNamespace(value=1),
        "heartbeat_value": SimpleNamespace(value=0.0),
        "failed_event": threading.Event(),
        "exception_info_queue": queue.Queue(),
        "metrics_queue": queue.Queue(),
    }


def arguments(**named: Any) -> dict[str, Any]:
    tokenizer = make_tokenizer()
    settings: dict[str, Any] = {
        "model_name": "base",
        "dataset": make_data(8, conversational=True),
        "processing_class": tokenizer,
        "eos_token_ids": [tokenizer.eos_token_id],
        "num_generations": 4,
        "max_inflight_tasks": 16,
        "max_tokens": 8,
        "vllm_server_url": "http://127.0.0.1:9",  # nobody is there
    }
    PartialState(cpu=True)  # what accelerate's loggers want
    return {**settings, **shared(), **named}


def make_loop(
    dispatcher: Dispatcher | None,
    *,
    kind: type[RolloutLoop] = RolloutLoop,
    concurrent_groups: int = 8,
    max_staleness: int = 3,
    **named: Any,
) -> Any:
    columns = tuple(dispatcher.reward_funcs) if dispatcher else ()
    options = LoopOptions(columns, concurrent_groups, max_staleness)
    return kind(guerdon=options, **arguments(**named))


def make_plain_loop(functions: list[Any], **named: Any) -> _AsyncRolloutLoop:
    return _AsyncRolloutLoop(reward_funcs=functions, **arguments(**named))


def group_of(index: int, texts: list[str], **columns: list[Any]) -> RolloutGroup:
    """One finished group."""
    count = len(texts)
    ids = [[ord(letter) % 128 for letter in text] or [0] for text in texts]
    return RolloutGroup(
        prompts=[[{"role": "user", "content": f"say {index}"}]] * count,
        reward_kwargs={"answer": ["a"] * count, **columns},
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completions_ids=ids,
        completions_sequences=[
            [TrainingSequence([5, *row], [0] + [1] * len(row), [0.0] * (len(row) + 1), "r")] for row in ids
        ],
        tool_call_counts=[0] * count,
        tool_failure_counts=[0] * count,
        model_version=1,
        group_id=index,
        env_rewards=[],
        rollout_rewards=[None] * count,
    )


def close(loop: _AsyncRolloutLoop) -> None:
    """Ends what a loop has opened when it was made; `run` does this itself."""
    loop._tool_pool.shutdown()
    loop._loop.close()


def score(loop: _AsyncRolloutLoop, groups: list[RolloutGroup]) -> list[list[Any]]:
    """The samples of each group, in the order in which their groups were sent on."""

    async def run() -> None:
        for group in groups:
            loop._groups_to_score.put_nowait(group)
        scoring = asyncio.create_task(loop._score_loop(stop_event=asyncio.Event()))
        expected = sum(len(rows) for group in groups for rows in group.completions_sequences)
        try:
            while loop.rollout_buffer.qsize() < expected and not scoring.done():
                await asyncio.wait([scoring], timeout=0.01)
            if scoring.done():
                scoring.result()
        finally:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    asyncio.set_event_loop(loop._loop)
    loop._loop.run_until_complete(run())
    by_group: dict[int, list[Any]] = {}
    while not loop.rollout_buffer.empty():
        sample = loop.rollout_buffer.get_nowait()
        by_group.setdefault(sample.group_id, []).append(sample)
    return list(by_group.values())


@contextmanager
def running(loop: _AsyncRolloutLoop) -> Iterator[SimpleNamespace]:
    """The loop, generating and scoring on a thread; at the end it is stopped and joined."""
    state = SimpleNamespace(error=None, thread=None)

    def run() -> None:
        try:
            loop.run()
        except BaseException as error:  # the test's to look at
            state.error = error

    state.thread = threading.Thread(target=run, name="rollout-loop")
    state.thread.start()
    try:
        yield state
    finally:
        if not loop._loop.is_closed():
            try:
                loop._loop.call_soon_threadsafe(loop._stop_event.set)
            except RuntimeError:  # it closed in between
                pass
        state.thread.join(60)
        assert not state.thread.is_alive()
