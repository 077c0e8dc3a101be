"""A pool that can't have all its workers: it scores with those it has, and says so once.

Each trainer is a process of its own, under a real limit on descriptors or processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from tests.faults import fault
from tests.stress.harness import another_user, reported, wait_for

# Limits itself, scores, and may go on until all workers are there.
PROGRAM = """
{limit}
with Dispatcher([act(isolation={isolation!r})], workers={workers}) as dispatcher:
    report = {{"right": [scored(dispatcher) for _ in range(4)], "workers": len(dispatcher.worker_pids())}}
    if {widen!r}:
        {widen}
        deadline = time.monotonic() + 100
        while len(dispatcher.worker_pids()) < {workers} and time.monotonic() < deadline:
            report["right"][-1] = scored(dispatcher)
            time.sleep(0.05)
        report["wide"] = len(dispatcher.worker_pids())
    print(json.dumps(report))
"""
DESCRIPTORS = "resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))"
PROCESSES = """
group = Path({{group!r}})
warmed = warm()
group.joinpath("cgroup.procs").write_text(str(os.getpid()))
group.joinpath("pids.max").write_text(str(int(group.joinpath("pids.current").read_text()) + {more}))
"""


def run(
    notes: Path, limit: str, widen: str = "", *, workers: int = 8, isolation: str = "worker"
) -> tuple[dict[str, Any], str]:
    program = PROGRAM.format(limit=limit, widen=widen, workers=workers, isolation=isolation)
    found, stderr = reported(program, notes, OPENBLAS_NUM_THREADS="1")
    assert found["right"] == [[True, []]] * 4
    return found, stderr


@contextmanager
def processes_group() -> Iterator[Path]:
    """A control group of this test's own, for a trainer to join and limit."""
    group = Path("/sys/fs/cgroup/pids") / f"guerdon-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
        group.rmdir()


@pytest.mark.parametrize(
    ("limit", "widen", "options", "advice"),
    [
        fault(
            "descriptors for one of eight workers are left (RLIMIT_NOFILE)",
            sees="nothing but one warning: that worker scores everything",
            of=(
                "warmed = warm()\n" + DESCRIPTORS.format(most="len(os.listdir('/proc/self/fd')) + 14"),
                "",
                {},
                "`ulimit -n`",
            ),
            id="descriptors for one",
        ),
        fault(
            "a control group's processes are used up after one of eight workers (pids.max)",
            sees="nothing but one warning; the pool widens again when the limit is raised",
            # the zygote, the loader, a worker
            of=(PROCESSES.format(more=3), "group.joinpath('pids.max').write_text('max')", {}, "`pids.max`"),
            id="processes for one",
        ),
        fault(
            'calls with `isolation="call"` have descriptors for two of 64 workers (RLIMIT_NOFILE)',
            sees="nothing but one warning: workers have the room, and one loader forks them all",
            of=(DESCRIPTORS.format(most=40), "", {"workers": 64, "isolation": "call"}, "`ulimit -n`"),
            id="descriptors for calls",
        ),
        fault(
            'calls with `isolation="call"` have processes for two of 64 workers (pids.max)',
            sees="nothing but one warning: workers have the room, and one loader forks them all",
            of=(PROCESSES.format(more=4), "", {"workers": 64, "isolation": "call"}, "`pids.max`"),
            id="processes for calls",
        ),
    ],
)
def test_a_pool_without_room_scores_with_the_workers_it_has(
    limit: str, widen: str, options: dict[str, Any], advice: str, tmp_path: Path
) -> None:
    with processes_group() if "{group" in limit else nullcontext() as group:
        found, stderr = run(tmp_path, limit.format(group=str(group)), widen, **options)
    assert options or found["workers"] == 1
    assert found.get("wide") == (8 if widen else None)
    warnings = [line for line in stderr.splitlines() if " workers, as another could not be started" in line]
    assert len(warnings) == 1, stderr[-3000:]
    assert warnings[0].startswith("[guerdon] runs with ")
    assert advice in warnings[0]


def test_the_soft_limit_on_descriptors_is_raised_for_all_workers(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_NOFILE, (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"
    found, stderr = run(tmp_path, limit, widen="pass")
    assert found["wide"] == 8
    assert "could not be started" not in stderr


@pytest.mark.fault(
    'calls with `isolation="call"` find all processes taken by the pool (RLIMIT_NPROC)',
    sees="nothing but a delay: an idle worker of the pool makes room",
)
def test_a_call_with_a_process_of_its_own_finds_none_left(tmp_path: Path) -> None:
    found, _ = reported(
        """
with Dispatcher([act(), act(isolation="call", name="alone")], workers=8) as dispatcher:
    scored(dispatcher, ["give:1"] * 40)
    deadline = time.monotonic() + 60
    while len(dispatcher.worker_pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    # Only what is still there when its turn comes: others' processes start and end meanwhile.
    every = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
    taken = sum(one["num_threads"] for one in every if one["uids"] and one["uids"].real == os.getuid())
    limit_processes((taken, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
    result = dispatcher.score(completions=["give:1"] * 4, notes=[os.environ["NOTES"]] * 4, num_generations=1)
    failures = [failure.reason for failure in result.failures()]
    print(json.dumps({"failures": failures, "rewards": result.rewards.ravel().tolist()}))
""",
        tmp_path,
        *another_user(54323),
        OPENBLAS_NUM_THREADS="1",
    )
    assert found["failures"] == []
    assert found["rewards"] == [1.0] * 8


def looked_up(completion: str) -> float:
    time.sleep(0.002)  # cheap calls would need no more workers than the cores
    return float(completion)


def test_few_samples_start_few_workers() -> None:
    with Dispatcher([reward(looked_up, timeout=30)], workers=12) as dispatcher:
        assert dispatcher.score(completions=["3"], num_generations=1).rewards.ravel().tolist() == [3.0]
        assert len(dispatcher.worker_pids()) == 1
        texts = [str(index) for index in range(400)]
        assert dispatcher.score(completions=texts, num_generations=1).rewards.ravel().tolist() == list(
            map(float, texts)
        )
        wait_for(lambda: len(dispatcher.worker_pids()) == 12, "a batch with work for all starts all")
