"""How many calls of a function run at once: what `Limit` says, or the lane's default."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, Status, group_reward, reward


class Gauge:
    """Counts who is inside; for functions of this process. Until `awaited` were inside at once,
    nobody is to leave."""

    def __init__(self, awaited: int = 0) -> None:
        self._lock = threading.Lock()
        self._until = time.monotonic() + 60
        self._awaited = awaited
        self._inside = self.most = 0

    @property
    def waits(self) -> bool:
        return self.most < self._awaited and time.monotonic() < self._until

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1


def most_at_once(path: Path) -> int:
    """Counts by the lines ``begin`` or ``end`` and a time, which calls of any process write."""
    moments = sorted((float(moment), step) for step, moment in (line.split() for line in path.read_text().splitlines()))
    inside = most = 0
    for _, step in moments:
        inside += 1 if step == "begin" else -1
        most = max(most, inside)
    return most


def timed(completion: str, path: str, awaited: int) -> float:
    """Writes down when it runs; the first stay until all have come."""
    begin = time.monotonic()
    with open(path, "a") as file:
        file.write(f"begin {begin}\n")
    while Path(path).read_text().count("begin") < awaited and time.monotonic() < begin + 60:
        time.sleep(0.01)
    time.sleep(0.03)
    with open(path, "a") as file:
        file.write(f"end {time.monotonic()}\n")
    return 1.0


def on_thread(gauge: Gauge, seconds: float) -> Any:
    def calling(completion: str) -> float:
        with gauge:
            time.sleep(seconds)
            while gauge.waits:
                time.sleep(0.01)
        return 1.0

    return calling


def on_loop(gauge: Gauge, seconds: float) -> Any:
    async def awaiting(completion: str) -> float:
        import asyncio

        with gauge:
            await asyncio.sleep(seconds)
            while gauge.waits:  # noqa: ASYNC110 - one of several loops and threads may be the last to come
                await asyncio.sleep(0.01)
        return 1.0

    return awaiting


@pytest.mark.parametrize(
    ("lane", "most", "decorate"),
    [
        *(("thread", most, reward) for most in (1, 2, 5)),
        *(("asyncio", most, reward) for most in (1, 3, 300)),
        ("thread", 2, group_reward),
    ],
)
def test_row_15_a_limit_holds_over_batches_and_is_used(lane: str, most: int, decorate: Any) -> None:
    gauge = Gauge(awaited=most)
    function = on_thread(gauge, 0.02) if lane == "thread" else on_loop(gauge, 0.01)

    def grouped(completions: list[str]) -> list[float]:
        return [function(completions[0])] * len(completions)

    limited = decorate(function if decorate is reward else grouped, lane=lane, limit=Limit(concurrency=most))
    with Dispatcher([limited], num_generations=2) as made:
        pending_batches = [made.submit(completions=["c"] * (200 if most == 300 else 20)) for _ in range(2)]
        assert all(pending.result().status.max() == Status.OK for pending in pending_batches)
    assert gauge.most == most


@pytest.mark.parametrize("most", [1, 2])
def test_limit_on_the_process_lane(most: int, tmp_path: Path) -> None:
    path = str(tmp_path / "times")
    limited = reward(timed, limit=Limit(concurrency=most))
    with Dispatcher([limited, reward(lambda completion: 1.0, name="other")], workers=4) as made:
        assert made.score(completions=["c"] * 40, path=[path] * 40, awaited=[most] * 40).status.max() == Status.OK
    assert most_at_once(tmp_path / "times") == most


def test_defaults() -> None:
    """256 awaits and 8 threads a function."""
    loop, threads = Gauge(awaited=256), Gauge(awaited=8)
    functions = [reward(on_loop(loop, 0.01)), reward(on_thread(threads, 0.005), lane="thread")]
    with Dispatcher(functions) as made:
        assert made.score(completions=["c"] * 400).status.max() == Status.OK
    assert loop.most == 256
    assert threads.most == 8
