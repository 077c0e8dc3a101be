"""A pool that can't have all its workers: it scores with those it has, and says so once.

Each trainer is a process of its own, under a real limit on descriptors or processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from tests.stress.harness import another_user, reported, wait_for

TRAINER = """
import json, os, resource, sys, time
from guerdon import Dispatcher, reward
from tests.stress import faulty_functions

TEXTS = [f"give:{index}" for index in range(60)]
ALL = [float(index) for index in range(60)]

def made(*more, **options):
    function = reward(faulty_functions.act, timeout=30, max_failure_rate=1.0, **options)
    return Dispatcher([function, *more], workers=8)

def scored(dispatcher):
    notes = [os.environ["NOTES"]] * len(TEXTS)
    result = dispatcher.score(completions=TEXTS, notes=notes, num_generations=1)
    return result.rewards[:, 0, 0].tolist() == ALL, [failure.reason for failure in result.failures()][:3]

def widen(dispatcher):
    # Gives work until all workers are there, or it takes too long; what the last batch gave.
    found, deadline = None, time.monotonic() + 100
    while len(dispatcher.worker_pids()) < 8 and time.monotonic() < deadline:
        found = scored(dispatcher)
        time.sleep(0.05)
    return found

def open_files():
    warm = Dispatcher([reward(lambda completion: 1.0, lane="thread", name="warm")])
    warm.score(completions=["a"], num_generations=1)  # the engine's own
    opened.append(warm)
    return len(os.listdir("/proc/self/fd"))

opened = []

def descriptors(limit):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

def report(dispatcher, **what):
    print(json.dumps({"workers": len(dispatcher.worker_pids()), **what}))
"""
ONE_OF_EIGHT = """
with made() as dispatcher:
    right = [scored(dispatcher) for _ in range(3)]
    report(dispatcher, right=right)
"""


def run(script: str, notes: Path, *prefix: str) -> tuple[dict[str, Any], str]:
    notes.chmod(0o777)
    return reported(TRAINER + script, *prefix, NOTES=str(notes), OPENBLAS_NUM_THREADS="1")


def expect_one_warning(stderr: str, advice: str) -> None:
    warnings = [line for line in stderr.splitlines() if " workers, as another could not be started" in line]
    assert len(warnings) == 1, stderr[-3000:]
    assert warnings[0].startswith("[guerdon] runs with ")
    assert advice in warnings[0]


@pytest.mark.fault(
    "descriptors for one of eight workers are left (RLIMIT_NOFILE)",
    sees="nothing but one warning: that worker scores everything",
)
def test_descriptors_for_one_of_eight_workers(tmp_path: Path) -> None:
    found, stderr = run("descriptors(open_files() + 14)" + ONE_OF_EIGHT, tmp_path)
    assert found == {"workers": 1, "right": [[True, []]] * 3}
    expect_one_warning(stderr, "`ulimit -n`")


def test_the_soft_limit_on_descriptors_is_raised_for_all_workers(tmp_path: Path) -> None:
    found, stderr = run(
        """
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (24, hard))
with made() as dispatcher:
    right = [scored(dispatcher) for _ in range(3)]
    widen(dispatcher)
    report(dispatcher, right=right)
""",
        tmp_path,
    )
    assert found == {"workers": 8, "right": [[True, []]] * 3}
    assert "could not be started" not in stderr


IN_GROUP = """
from pathlib import Path
group = Path({group!r})
warm = Dispatcher([reward(lambda completion: 1.0, lane="thread", name="warm")])
warm.score(completions=["a"], num_generations=1)  # the engine's own threads
group.joinpath("cgroup.procs").write_text(str(os.getpid()))

def limit(more):
    threads = int(group.joinpath("pids.current").read_text())
    group.joinpath("pids.max").write_text(str(threads + more))
"""


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


@pytest.mark.fault(
    "a control group's processes are used up after one of eight workers (pids.max)",
    sees="nothing but one warning; the pool widens again when the limit is raised",
)
def test_processes_for_one_of_eight_workers(tmp_path: Path) -> None:
    with processes_group() as group:
        found, stderr = run(
            f"""
{IN_GROUP.format(group=str(group))}
dispatcher = made()
limit(3)  # the zygote, the loader, a worker
narrow = [scored(dispatcher) for _ in range(3)]
workers = len(dispatcher.worker_pids())
group.joinpath("pids.max").write_text("max")
wide = widen(dispatcher)
report(dispatcher, narrow=narrow, then=workers, wide=wide)
dispatcher.close()
warm.close()
""",
            tmp_path,
        )
    assert found == {"workers": 8, "narrow": [[True, []]] * 3, "then": 1, "wide": [True, []]}
    expect_one_warning(stderr, "`pids.max`")


MANY_FOR_CALLS = """
with Dispatcher([reward(faulty_functions.act, timeout=30, isolation="call")], workers=64) as dispatcher:
    {limit}
    report(dispatcher, right=[scored(dispatcher) for _ in range(4)])
"""


@pytest.mark.fault(
    'calls with `isolation="call"` have descriptors for two of 64 workers (RLIMIT_NOFILE)',
    sees="nothing but one warning: workers have the room, and one loader forks them all",
)
def test_descriptors_for_two_of_64_workers_for_calls(tmp_path: Path) -> None:
    found, stderr = run(MANY_FOR_CALLS.format(limit="descriptors(40)"), tmp_path)
    assert found["right"] == [[True, []]] * 4
    expect_one_warning(stderr, "`ulimit -n`")


@pytest.mark.fault(
    'calls with `isolation="call"` have processes for two of 64 workers (pids.max)',
    sees="nothing but one warning: workers have the room, and one loader forks them all",
)
def test_processes_for_two_of_64_workers_for_calls(tmp_path: Path) -> None:
    with processes_group() as group:
        script = IN_GROUP.format(group=str(group)) + MANY_FOR_CALLS.format(limit="limit(4)") + "warm.close()\n"
        found, stderr = run(script, tmp_path)
    assert found["right"] == [[True, []]] * 4
    expect_one_warning(stderr, "`pids.max`")


@pytest.mark.fault(
    'calls with `isolation="call"` find all processes taken by the pool (RLIMIT_NPROC)',
    sees="nothing but a delay: an idle worker of the pool makes room",
)
def test_a_call_with_a_process_of_its_own_finds_none_left(tmp_path: Path) -> None:
    found, _ = run(
        """
def lengths(completions, **columns):
    return [float(len(text)) for text in completions]

with made(reward(faulty_functions.act, timeout=30, isolation="call", name="alone", max_failure_rate=1.0)) as dispatcher:
    alone = ["give:1"] * 4
    notes = [os.environ["NOTES"]]
    dispatcher.score(completions=["give:1"] * 40, notes=notes * 40, num_generations=1)
    deadline = time.monotonic() + 60
    while len(dispatcher.worker_pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    import psutil
    mine = [psutil.Process(), *psutil.Process().children(recursive=True)]
    # Only what is still there when its turn comes: others' processes start and end meanwhile.
    every = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
    taken = sum(one["num_threads"] for one in every if one["uids"] and one["uids"].real == os.getuid())
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    for process in mine:
        try:
            resource.prlimit(process.pid, resource.RLIMIT_NPROC, (taken, before[1]))
        except ProcessLookupError:  # it ended
            continue
    result = dispatcher.score(completions=alone, notes=notes * 4, num_generations=1)
    report(dispatcher, failures=[failure.reason for failure in result.failures()][:3], rewards=result.rewards.ravel().tolist())
""",
        tmp_path,
        *another_user(54323),
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
