"""A timeline gives each function the time that its calls took, on every lane."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

from guerdon import Dispatcher, Trace, reward
from guerdon.cli import main
from tests.clock import eventually
from tests.timeline.perfetto_files import PerfettoFile, Slice, assert_whole, parse

PAUSE_S = 0.004
# What may lie between two calls of a frame.
BETWEEN_S = 5e-6


def quick(completion: str) -> float:
    return 1.0


def slow(completion: str) -> float:
    time.sleep(PAUSE_S)
    return 1.0


async def slow_in_loop(completion: str) -> float:
    await asyncio.sleep(PAUSE_S)
    return 1.0


def of_depth_0(file: PerfettoFile, name: str) -> list[Slice]:
    return [one for one in file.named(name) if one.depth == 0]


def length_s(one: Slice) -> float:
    assert one.end is not None
    return (one.end - one.begin) / 1e9


@pytest.mark.parametrize("shortest", [0.0, 50e-6])
@pytest.mark.parametrize("lane", ["process", "thread", "asyncio"])
def test_two_functions_are_as_busy_as_their_calls_took(tmp_path: Path, lane: str, shortest: float) -> None:
    """Calls of microseconds between those of milliseconds: the ends of two frames of a worker come
    almost at once."""
    path = tmp_path / "run.pftrace"
    body = slow_in_loop if lane == "asyncio" else slow
    # A loop's short calls are drawn together where they overlap others.
    beside = "thread" if lane == "asyncio" else lane
    functions = [reward(quick, name="quick", lane=beside), reward(body, name="slow", lane=lane)]
    ran_s: dict[str, float] = defaultdict(float)
    with Dispatcher(functions, trace=Trace(path, shortest=shortest), workers=2) as dispatcher:
        for _ in range(6):
            result = dispatcher.score(completions=["x"] * 64, num_generations=8)
            for name in ("quick", "slow"):
                ran_s[name] += result.timings[name]["run_total_s"]
    file = parse(path)
    assert_whole(file)
    for name in ("quick", "slow"):
        slices = of_depth_0(file, name)
        assert sum(one.values.get("calls", 1) for one in slices) == 6 * 64, name
        assert sum(map(length_s, slices)) == pytest.approx(ran_s[name], rel=0, abs=BETWEEN_S * 6 * 64), name
    calls = [one for one in file.named("slow") if "sample" in one.values]
    assert min(map(length_s, calls)) >= 0.99 * PAUSE_S
    # No worker and no thread needed a second track.
    tracks = {one.track for one in of_depth_0(file, "slow") + of_depth_0(file, "quick")}
    assert lane == "asyncio" or all(track.count("/") == 2 for track in tracks), tracks


def unsteady(completion: str) -> float:
    folder, sample = completion.rsplit(" ", 1)
    time.sleep(PAUSE_S)
    if int(sample) % 3 == 0:
        try:
            Path(folder, sample).touch(exist_ok=False)
        except FileExistsError:
            return 1.0
        raise ConnectionError("gone")
    return 1.0


def deadly(completion: str) -> float:
    sample = int(completion.rsplit(" ", 1)[1])
    time.sleep(PAUSE_S)
    if sample == 5:
        time.sleep(60)
    if sample == 11:
        os._exit(3)
    return 1.0


def test_kills_and_retries_take_no_time_from_other_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.pftrace"
    functions = [
        reward(quick, name="quick", lane="process"),
        reward(unsteady, name="unsteady", lane="process", retries=1),
        reward(deadly, name="deadly", lane="process", timeout=1.0, grace=0.1),
    ]
    options = {"max_failure_rate": 1.0, "workers": 2}
    with Dispatcher(functions, trace=Trace(path, shortest=0.0), **options) as dispatcher:  # type: ignore[arg-type]
        completions = [f"{tmp_path} {sample}" for sample in range(64)]
        result = dispatcher.score(completions=completions, num_generations=8)
    assert {one.sample for one in result.failures()} == {5, 11}
    file = parse(path)
    assert_whole(file)
    for name in ("quick", "unsteady", "deadly"):
        calls = [one for one in file.named(name) if "sample" in one.values]
        assert name == "quick" or min(map(length_s, calls)) >= 0.99 * PAUSE_S
        # Only an attempt that gave the outcome counts in the timings.
        last: dict[int, Slice] = {}
        for one in sorted(calls, key=lambda one: one.begin):
            last[one.values["sample"]] = one
        total_s = result.timings[name]["run_total_s"]
        assert sum(map(length_s, last.values())) == pytest.approx(total_s, rel=0, abs=64 * BETWEEN_S), name
    again = [one for one in file.named("unsteady") if one.values.get("attempt") == 2]
    assert len(again) == 22
    assert main(["trace", str(path)]) == 0
    assert "unsteady        86      22" in capsys.readouterr().out


def test_nothing_runs_on_the_timeline_of_an_idle_engine(tmp_path: Path) -> None:
    """A worker was sent a frame before it ended, also where two threads report that."""
    path = tmp_path / "run.pftrace"
    functions = [reward(quick, name="quick", lane="process"), reward(slow, name="slow", lane="process")]
    with Dispatcher(functions, trace=Trace(path, shortest=0.0), workers=2) as dispatcher:
        for _ in range(10):
            dispatcher.score(completions=["x"] * 64, num_generations=8)
        eventually(lambda: all(one.end is not None for one in parse(path).slices), seconds=10)
