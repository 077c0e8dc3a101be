"""Where a function runs: its lane, loop and worker, and never on the caller's thread or
loop (invariant 7 of docs/internals/promises.md)."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from guerdon import Dispatcher, Status, group_reward, reward


def place() -> float:
    """A number that tells threads of this process apart, exact in float32."""
    return float(threading.get_native_id())


def sync_sample(completion: str) -> float:
    return float(os.getpid())


def thread_sample(completion: str) -> float:
    return place()


async def async_sample(completion: str) -> float:
    await asyncio.sleep(0)
    return place()


def grouped(completions: list[str]) -> list[float]:
    return [float(os.getpid())] * len(completions)


def test_sync_functions_run_in_other_processes_and_async_ones_on_other_threads() -> None:
    functions = [
        reward(sync_sample),
        group_reward(grouped),
        reward(thread_sample, lane="thread"),
        reward(async_sample),
        reward(async_sample, name="called", loop="shared"),
    ]
    with Dispatcher(functions, workers=2) as made:
        result = made.score(completions=["c"] * 64, num_generations=4)
        workers = set(made.worker_pids())
    pids = set(result.rewards[:, :, :2].ravel().astype(int))
    assert os.getpid() not in pids
    assert len(pids) <= 2 + len(workers)
    here = {thread.native_id for thread in threading.enumerate()}
    assert here.isdisjoint(set(result.rewards[:, :, 2:].ravel().astype(int)))


def test_a_trl_function_has_one_worker_of_its_own() -> None:
    """One call at a time, so that its module state behaves as in the trainer."""

    def first(completions: list[str], **kwargs: Any) -> list[float]:
        globals().setdefault("calls_seen", []).append(len(completions))
        return [float(os.getpid()), float(len(globals()["calls_seen"]))] * (len(completions) // 2)

    def second(completions: list[str], **kwargs: Any) -> list[float]:
        return [float(os.getpid())] * len(completions)

    with Dispatcher([first, second, reward(sync_sample)], workers=2) as made:
        pending_batches = [made.submit(prompts=["p"] * 8, completions=["c"] * 8) for _ in range(6)]
        rewards = np.stack([pending.result().rewards[:, 0] for pending in pending_batches])
    assert len(set(rewards[:, ::2, 0].ravel())) == 1
    assert sorted(rewards[:, 1, 0]) == [1, 2, 3, 4, 5, 6]
    assert len(set(rewards[:, :, 1].ravel())) == 1
    assert not set(rewards[:, ::2, 0].ravel()) & set(rewards[:, :, 1].ravel())
    assert not set(rewards[:, ::2, 0].ravel()) & set(rewards[:, :, 2].ravel())


def test_functions_share_a_loop_by_option() -> None:
    async def first(completions: list[str], **kwargs: Any) -> list[float]:
        return [place()] * len(completions)

    async def second(completions: list[str], **kwargs: Any) -> list[float]:
        return [place()] * len(completions)

    functions = [
        first,
        second,
        reward(async_sample, name="own"),
        reward(async_sample, name="other"),
        reward(async_sample, name="shared one", loop="shared"),
        reward(async_sample, name="shared two", loop="shared"),
    ]
    with Dispatcher(functions) as made:
        places = [made.score(prompts=["p"] * 3, completions=["c"] * 3).rewards.reshape(3, 6) for _ in range(3)]
    assert all((one == places[0][0]).all() for one in places)  # each keeps its loop
    undecorated, undecorated_too, own, other, shared, shared_too = places[0][0]
    assert undecorated == undecorated_too
    assert shared == shared_too
    assert len({undecorated, own, other, shared}) == 4


def test_inv_7_a_running_loop_goes_on_and_runs_no_users_code() -> None:
    """`ascore` in a running loop, several at once, beside the loop's own work."""
    functions = [reward(thread_sample, lane="thread"), reward(async_sample), reward(sync_sample)]

    async def main(made: Dispatcher) -> tuple[list[Any], int, int]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(beat())
        results = await asyncio.gather(*[made.ascore(completions=["c"] * 32) for _ in range(4)])
        task.cancel()
        return results, beats, threading.get_native_id()

    with Dispatcher(functions, workers=1) as made:
        results, beats, here = asyncio.run(main(made))
    assert beats > 10
    for result in results:
        assert result.status.max() == Status.OK
        assert here not in set(result.rewards[:, 0, :2].ravel().astype(int))


def test_inv_7_from_many_threads_and_their_loops_at_once() -> None:
    def calling(seconds: float) -> float:
        return seconds + 1

    async def awaiting(seconds: float) -> float:
        await asyncio.sleep(0)
        return seconds + 1

    functions = [reward(calling), reward(calling, name="threaded", lane="thread"), reward(awaiting)]
    with Dispatcher(functions, workers=2) as made:

        def score(index: int) -> Any:
            batch: dict[str, Any] = {"completions": ["c"] * 200, "seconds": [float(index)] * 200}
            result = asyncio.run(made.ascore(**batch)) if index % 2 else made.score(**batch)
            return result.rewards

        with ThreadPoolExecutor(8) as pool:
            rewards = list(pool.map(score, range(8)))
    assert all((rewards[index] == index + 1).all() for index in range(8))


def test_inv_7_score_blocks_inside_a_running_loop_but_works() -> None:
    """Cells of a notebook run in a loop."""

    async def main(made: Dispatcher) -> float:
        return float(made.score(completions=["c"]).rewards[0, 0, 0])

    with Dispatcher([reward(lambda completion: 3.0, name="three"), reward(async_sample)], workers=1) as made:
        assert asyncio.run(main(made)) == 3.0
