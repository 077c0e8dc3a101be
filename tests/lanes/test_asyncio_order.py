"""The asyncio lane takes what it can run: the scheduler's order holds for what waits."""

from __future__ import annotations

import asyncio
import threading
import time

from guerdon import Dispatcher, Limit, StatefulReward, Status
from tests.lanes.lane_helpers import looped


class Groups(StatefulReward):
    """Waits, and notes what it was called for. Calls beyond the `first` wait for `go` too."""

    def __init__(self, seconds: float, first: int = 1_000_000) -> None:
        self.seconds = seconds
        self.first = first
        self.go = threading.Event()
        self.started: list[str] = []

    async def score(self, completion: str) -> float:
        self.started.append(completion)
        if len(self.started) > self.first and not self.go.is_set():
            await asyncio.to_thread(self.go.wait, 100)
        await asyncio.sleep(self.seconds)
        return float(completion)

    async def finish_group(self, scores: list[float | None]) -> list[float | None]:
        return [score if score is None else score + 1 for score in scores]


def test_a_group_is_finished_before_the_backlog() -> None:
    """512 calls, 32 at a time: the first groups are there while the second or third wave runs."""
    function = Groups(0.1, first=32 * 4)
    with Dispatcher([looped(function, limit=Limit(concurrency=32))]) as dispatcher:
        pending = dispatcher.submit(completions=[str(index) for index in range(512)], num_generations=8)
        groups = iter(pending.groups(timeout=60))
        assert next(groups).index < 4
        function.go.set()
        order = [group.index for group in groups]
        assert sorted(order[:15]) == order[:15] or max(order[:15]) < 32  # groups in order, about
        result = pending.result()
    assert (result.status == Status.OK).all()
    assert result.rewards[0, :, 0].tolist() == [float(index + 1) for index in range(8)]


def test_a_retry_of_an_older_batch_goes_before_the_backlog_of_a_newer_one() -> None:
    started: list[str] = []

    async def function(completion: str) -> float:
        started.append(completion)
        if completion == "old" and started.count("old") == 1:
            raise ValueError("again")
        await asyncio.sleep(0.01)
        return 1.0

    with Dispatcher([looped(function, retries=3, limit=Limit(concurrency=4))]) as dispatcher:
        older = dispatcher.submit(completions=["old"])
        newer = dispatcher.submit(completions=["new"] * 400)
        assert older.result().rewards.item() == 1.0
        # The backoff is 0.2 s at most, in which eighty newer calls or so are run.
        assert started.index("old", started.index("old") + 1) < 250
        assert (newer.result().status == Status.OK).all()


def test_cheap_calls_that_come_to_take_long_are_taken_back() -> None:
    """The loop has thousands of cheap ones waiting; once they take long it has those it runs."""
    function = Groups(0.0)
    with Dispatcher([looped(function, limit=Limit(concurrency=16))]) as dispatcher:
        for _ in range(3):
            dispatcher.score(completions=["0"] * 3000, num_generations=3000)
        function.seconds = 0.3
        newer = dispatcher.submit(completions=["1"] * 96, num_generations=16)
        time.sleep(0.15)
        older = dispatcher.submit(completions=["2"] * 16, num_generations=16)
        newer.cancel()
        assert (older.result().rewards == 3.0).all()


def test_single_samples_come_in_any_number() -> None:
    """Each is a frame of its own where the loop is idle; what waits comes together."""

    async def function(completion: str) -> float:
        await asyncio.sleep(0)
        return float(completion)

    with Dispatcher([looped(function)]) as dispatcher:
        stream = dispatcher.stream()
        for index in range(3000):
            stream.add(completions=[str(index)])
        stream.finish()
        assert stream.result().rewards[:, 0, 0].tolist() == list(range(3000))
