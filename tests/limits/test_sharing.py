"""Limits that functions, lanes and processes share.

Bounds here tell only what is shared and kept from what is not: how near to the allowance the rates
come is shown to the percent on a paused clock (`rust/core/tests/limits.rs`) and measured by
`benches/python/bench_rate_limit.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon import Dispatcher, Limit, Status, reward
from tests.limits.server import Window, serving

ROOT = Path(__file__).parents[2]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.limits.one_of_many", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_row_19_four_processes_share_an_allowance_and_lose_nothing() -> None:
    calls, window = 60, Window(most=100, seconds=1.5)
    with serving(window) as url:
        lanes = ["thread", "asyncio"] * 2
        processes = [start(lane, url, calls, 100 / 1.5 * 60) for lane in lanes]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            reports = [json.loads(process.communicate("go\n", timeout=100)[0]) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    assert [report["ok"] for report in reports] == [calls] * 4
    assert len(window.answered) == 4 * calls
    # No opening burst: three times the rate is let through, four times is what each on its own
    # would do.
    first = [at for at in window.answered if at - window.answered[0] < 0.5]
    assert len(first) <= 100
    answers, refusals, _ = window.after(0)
    assert refusals <= (answers + refusals) / 4


@pytest.mark.fault(
    "a process that has all calls in flight of a shared limit is killed",
    sees="nothing: its places are free again",
)
def test_calls_at_a_time_are_free_again_when_their_process_is_killed() -> None:
    process = start("hold", "", 2, 0)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["held\n"] * 2
        limited = reward(lambda completion: 1.0, name="waits", lane="thread", limit=Limit(concurrency=2, key="holders"))
        with Dispatcher([limited]) as made:
            pending = made.submit(completions=["c"] * 4)
            with pytest.raises(TimeoutError):
                pending.result(timeout=0.5)
            process.kill()
            result = pending.result(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert result.status.ravel().tolist() == [Status.OK] * 4
