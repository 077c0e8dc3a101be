"""Resource exhaustion: no descriptors, processes, memory or disk left.

Each trainer is a process of its own, which limits itself and reports in one line of JSON.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults import fault
from tests.stress.harness import another_user, reported

TRAINER = """
import json, os, resource, sys, time
from guerdon import Dispatcher, reward
from tests.stress import faulty_functions

def score(dispatcher, texts):
    result = dispatcher.score(completions=texts, notes=[{notes!r}] * len(texts), num_generations=1)
    return result, [failure.reason for failure in result.failures()]

def made(**options):
    return Dispatcher([reward(faulty_functions.act, timeout=10, max_failure_rate=1.0, **options)], workers=2)

def limit_processes(most):
    # Of this trainer and all below it; one may end as we come to it.
    import psutil
    for pid in [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]:
        try:
            resource.prlimit(pid, resource.RLIMIT_NPROC, most)
        except ProcessLookupError:
            continue

def tell(**what):
    print(json.dumps(what))

GOOD = [f"give:{{index}}" for index in range(50)]
"""


def run(script: str, notes: Path, *prefix: str, **environment: str) -> dict[str, Any]:
    return reported(TRAINER.format(notes=str(notes)) + script, *prefix, **environment)[0]


@pytest.mark.parametrize(
    ("limit", "restore", "user", "reason"),
    [
        fault(
            "the trainer has no file descriptors left (RLIMIT_NOFILE) when workers are needed",
            sees="`error` for the calls that need them: no worker process could be started, too many open files; it recovers once there are some",
            of=(
                (
                    "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
                    "    before = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
                    '    most = max(map(int, os.listdir("/proc/self/fd"))) + 2\n'
                    "    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))"
                ),
                "resource.setrlimit(resource.RLIMIT_NOFILE, before)",
                None,
                "Too many open files (os error 24)",
            ),
            id="descriptors",
        ),
        fault(
            "the trainer may not have another process (RLIMIT_NPROC, as an unprivileged user) when workers are needed",
            sees="`error` for the calls that need them: no worker process could be started, resource temporarily unavailable; it recovers once it may",
            of=(
                "before = resource.getrlimit(resource.RLIMIT_NPROC)\n    limit_processes((1, before[1]))",
                "limit_processes(before)",
                54321,
                "Resource temporarily unavailable (os error 11)",
            ),
            id="processes",
        ),
    ],
)
def test_nothing_to_start_workers_with(limit: str, restore: str, user: int | None, reason: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    report = run(
        f"""
with made() as dispatcher:
    score(dispatcher, GOOD)
    {limit}
    start = time.monotonic()
    _, starved = score(dispatcher, ["signal_itself:9", *GOOD])
    took = time.monotonic() - start
    {restore}
    deadline = time.monotonic() + 100
    while (again := score(dispatcher, GOOD)[1]) and time.monotonic() < deadline:
        time.sleep(0.1)
    tell(starved=starved, took=took, again=again)
""",
        tmp_path,
        *([] if user is None else another_user(user)),
    )
    assert report["took"] < 60
    assert report["again"] == []
    assert set(report["starved"]) <= {
        f"no worker process could be started: {reason}",
        "the worker process was killed by SIGKILL (out of memory?)",
        "the worker process ended",
    }


@pytest.mark.fault(
    "the trainer may not start any process from the beginning (RLIMIT_NPROC)",
    sees="`error` for all calls: no worker process could be started, with the system's reason",
)
def test_no_zygote(tmp_path: Path) -> None:
    report = run(
        """
dispatcher = made()
import threading, guerdon._native
held = [threading.Event() for _ in range(1)]
warm = Dispatcher([reward(lambda completion: 1.0, lane="thread", name="warm")])
warm.score(completions=["a"], num_generations=1)  # the engine's own threads
before = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
start = time.monotonic()
try:
    _, starved = score(dispatcher, GOOD[:3])
except Exception as error:
    starved = [f"{type(error).__name__}: {error}"]
tell(starved=starved, took=time.monotonic() - start)
resource.setrlimit(resource.RLIMIT_NPROC, before)
dispatcher.close()
warm.close()
""",
        tmp_path,
        *another_user(54322),
    )
    assert report["took"] < 60
    assert report["starved"]
    assert all("emporarily unavailable" in reason or "can't start new thread" in reason for reason in report["starved"])


@pytest.mark.fault(
    "the trainer's address space is limited (RLIMIT_AS, as batch systems do), and a function takes what is left",
    sees="`error`: MemoryError; its siblings are scored",
)
def test_an_address_space_that_runs_out(tmp_path: Path) -> None:
    report = run(
        """
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 30), resource.RLIM_INFINITY))
with made() as dispatcher:
    result, reasons = score(dispatcher, [*GOOD, "take_addresses"])
    tell(reasons=reasons, good=result.rewards[:50, 0, 0].tolist())
""",
        tmp_path,
    )
    assert [reason.partition(":")[0] for reason in report["reasons"]] == ["MemoryError"]
    assert report["good"] == [float(index) for index in range(50)]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        fault(
            "the folder for temporary files can't be written to",
            sees="nothing: the lane writes no files; `error` from a function that writes there itself",
            of=("unwritable", "OSError"),
        ),
        fault(
            "the folder for temporary files is full",
            sees="nothing: the lane writes no files; `error` from a function that writes there itself",
            of=("full", "No space left on device"),
        ),
    ],
)
def test_no_room_for_temporary_files(kind: str, reason: str, tmp_path: Path) -> None:
    prefix: list[str] = []
    if kind == "full":
        folder, unshare = tmp_path / "temporary", shutil.which("unshare")
        folder.mkdir()
        mount = f"mount -t tmpfs -o size=16k none {folder} && (cat /dev/zero >{folder}/all 2>/dev/null || true)"
        if unshare is None or subprocess.run([unshare, "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
            pytest.skip("no file system can be mounted here")
        prefix = [unshare, "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    else:
        folder = Path("/proc/self/task")  # nobody may, root neither
    report = run(
        """
with made() as dispatcher:
    result, reasons = score(dispatcher, [*GOOD, "write_a_temporary_file"])
    tell(reasons=reasons, good=result.rewards[:50, 0, 0].tolist())
""",
        tmp_path,
        *prefix,
        TMPDIR=str(folder),
    )
    assert report["good"] == [float(index) for index in range(50)]
    (found,) = report["reasons"]
    assert reason in found or kind == "unwritable"
    assert "Errno" in found
