"""Limits that functions, lanes and processes share.

Bounds here tell only what is shared and kept from what is not: how near to the allowance the rates
come is shown to the percent on a paused clock (`rust/core/tests/core/limits.rs`) and measured by
`benches/python/bench_rate_limit.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, Status, reward
from tests.clock import one_of_three
from tests.limits import one_of_many
from tests.limits.server import Window, serving
from tests.processes import started_python

ROOT = Path(__file__).parents[2]


def test_engines_with_another_layout_of_the_file_have_another_file() -> None:
    """Each would reset the file of the other."""
    written = (ROOT / "rust/core/src/limits/shared_file.rs").read_text()
    named = (ROOT / "python/guerdon/limits.py").read_text()
    (magic,) = re.findall(r"const MAGIC: u64 = 0x[0-9A-F_]*([0-9A-F]{2});", written)
    (layout,) = re.findall(r"_LAYOUT = (\d+)", named)
    assert int(magic, 16) == int(layout)


class Worker:
    """A process of one_of_many.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._input, self._output = process, process.stdin, process.stdout

    def reads(self, line: str) -> None:
        assert self._output.readline() == line + "\n"

    def tell(self, line: str) -> None:
        self._input.write(line + "\n")
        self._input.flush()

    def work(self) -> None:
        self.tell("work")
        self.reads("working")

    def report(self, last: str = "") -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.process.communicate(last, timeout=100)[0])
        return report


@contextmanager
def started(count: int, *arguments: object) -> Iterator[list[Worker]]:
    """Processes that end with the block."""
    program = Path(one_of_many.__file__)
    with ExitStack() as stack:
        processes = (started_python(program, *arguments, stdin=subprocess.PIPE) for _ in range(count))
        yield [Worker(stack.enter_context(process)) for process in processes]


def test_row_19_four_processes_share_an_allowance_and_lose_nothing() -> None:
    calls, window = 60, Window(most=100, seconds=1.5)
    with serving(window) as url:
        work = url, calls, 100 / 1.5 * 60
        with started(2, "thread", *work) as threads, started(2, "asyncio", *work) as loops:
            every = [*threads, *loops]
            for one in every:
                one.reads("ready")
            for one in every:
                one.tell("go")
            reports = [one.report() for one in every]
    assert [report["ok"] for report in reports] == [calls] * 4
    assert len(window.answered) == 4 * calls
    # No opening burst: three times the rate is let through, four times is what each on its own
    # would do.
    first = [at for at in (*window.answered, *window.refused) if at - window.answered[0] < 0.5]
    assert len(first) <= 100
    # Each on its own, three of four would come too soon; some do where this machine stood still.
    answers, refusals, _ = window.after(0)
    assert refusals <= (answers + refusals) / 3


@pytest.mark.fault(
    "a process that has all calls in flight of a shared limit is killed",
    sees="nothing: its places are free again",
)
def test_calls_at_a_time_are_free_again_when_their_process_is_killed() -> None:
    with started(1, "hold", "", 2, 0) as (holder,):
        for _ in range(2):
            holder.reads("held")
        limited = reward(lambda completion: 1.0, name="waits", lane="thread", limit=Limit(concurrency=2, key="holders"))
        with Dispatcher([limited]) as made:
            pending = made.submit(completions=["c"] * 4)
            with pytest.raises(TimeoutError):
                pending.result(timeout=0.5)
            holder.process.kill()
            result = pending.result(timeout=60)
    assert result.status.ravel().tolist() == [Status.OK] * 4


@contextmanager
def workers(count: int, places: int, seconds: float) -> Iterator[list[Worker]]:
    """Processes, each ready, that share `places` for calls of so many `seconds`."""
    with started(count, "work", "", places, seconds) as every:
        for worker in every:
            worker.reads("ready")
        yield every


def within(report: dict[str, Any], start: float, end: float) -> list[float]:
    return [at for at in report["begun"] if start <= at < end]


def test_a_process_that_comes_late_starts_soon_and_gets_its_share() -> None:
    one_of_three(_late_one_gets_its_share)


def _late_one_gets_its_share() -> None:
    with workers(2, places=4, seconds=0.02) as (first, late):
        first.work()
        time.sleep(0.5)
        late.work()
        time.sleep(2.5)
        reports = [worker.report("stop\n") for worker in (late, first)]
    asked = reports[0]["asked"]
    assert reports[0]["begun"][0] - asked < 1, "of a hundred calls a second that the other one would make"
    late_calls, first_calls = (len(within(report, asked + 0.5, asked + 2.5)) for report in reports)
    assert late_calls > 0.75 * (late_calls + first_calls) / 2
    assert first_calls > 0.75 * (late_calls + first_calls) / 2


@pytest.mark.fault(
    "a process is killed while it waits for a limit that others share",
    sees="nothing: the others' calls go on, and nobody leaves a place to it",
)
def test_nobody_waits_for_a_process_that_was_killed_while_it_waited() -> None:
    one_of_three(_nobody_waits_for_a_killed_one)


def _nobody_waits_for_a_killed_one() -> None:
    # One place: of three that want it, two wait.
    with workers(3, places=1, seconds=0.05) as every:
        for worker in every:
            worker.work()
        time.sleep(0.5)
        every[0].process.kill()
        every[0].process.wait()
        killed = time.monotonic()
        time.sleep(2)
        reports = [worker.report("stop\n") for worker in every[1:]]
    begun = sorted(at for report in reports for at in within(report, killed, killed + 2))
    gaps = [later - at for at, later in zip([killed, *begun], [*begun, killed + 2], strict=True)]
    assert max(gaps) < 1
    assert len(begun) > 20, "of forty that fit into two seconds"
    assert all(len(within(report, killed, killed + 2)) > 0.75 * len(begun) / 2 for report in reports)
