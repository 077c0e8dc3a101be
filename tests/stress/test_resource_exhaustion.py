"""Resource exhaustion: no descriptors, processes, memory or disk left.

Each trainer is a process of its own, which limits itself and reports in one line of JSON.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults import fault
from tests.stress.harness import another_user, reported


@pytest.mark.parametrize(
    ("limit", "restore", "user", "reason"),
    [
        fault(
            "the trainer has no file descriptors left (RLIMIT_NOFILE) when workers are needed",
            sees="`error` for the calls that need them: no worker process could be started, too many open files; it recovers once there are some",
            of=(
                (
                    "before = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
                    '    most = max(map(int, os.listdir("/proc/self/fd"))) + 2\n'
                    "    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))"
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
    report, _ = reported(
        f"""
with Dispatcher([act(timeout=10)], workers=2) as dispatcher:
    scored(dispatcher)
    {limit}
    start = time.monotonic()
    _, starved = scored(dispatcher, ["signal_itself:9", *TEXTS])
    took = time.monotonic() - start
    {restore}
    deadline = time.monotonic() + 100
    while (again := scored(dispatcher)[1]) and time.monotonic() < deadline:
        time.sleep(0.1)
    print(json.dumps({{"starved": starved, "took": took, "again": again}}))
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
    report, _ = reported(
        """
dispatcher = Dispatcher([act(timeout=10)], workers=2)
warmed = warm()
before = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
start = time.monotonic()
try:
    _, starved = scored(dispatcher, TEXTS[:3])
except Exception as error:
    starved = [f"{type(error).__name__}: {error}"]
print(json.dumps({"starved": starved, "took": time.monotonic() - start}))
resource.setrlimit(resource.RLIMIT_NPROC, before)
dispatcher.close()
warmed.close()
""",
        tmp_path,
        *another_user(54322),
    )
    assert report["took"] < 60
    assert report["starved"]
    assert all("emporarily unavailable" in reason or "can't start new thread" in reason for reason in report["starved"])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        fault(
            "the trainer's address space is limited (RLIMIT_AS, as batch systems do), and a function takes what is left",
            sees="`error`: MemoryError; its siblings are scored",
            of=("addresses", "MemoryError(:|$)"),
        ),
        fault(
            "the folder for temporary files can't be written to",
            sees="nothing: the lane writes no files; `error` from a function that writes there itself",
            of=("unwritable", ".*Errno"),
        ),
        fault(
            "the folder for temporary files is full",
            sees="nothing: the lane writes no files; `error` from a function that writes there itself",
            of=("full", ".*Errno.* No space left on device"),
        ),
    ],
)
def test_a_call_without_room_fails_alone(kind: str, reason: str, tmp_path: Path) -> None:
    prefix: list[str] = []
    environment: dict[str, str] = {}
    guilty, limit = "write_a_temporary_file", ""
    if kind == "full":
        folder, unshare = tmp_path / "temporary", shutil.which("unshare")
        folder.mkdir()
        mount = f"mount -t tmpfs -o size=16k none {folder} && (cat /dev/zero >{folder}/all 2>/dev/null || true)"
        if unshare is None or subprocess.run([unshare, "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
            pytest.skip("no file system can be mounted here")
        prefix = [unshare, "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]
        environment = {"TMPDIR": str(folder)}
    elif kind == "unwritable":
        environment = {"TMPDIR": "/proc/self/task"}  # nobody may, root neither
    else:
        guilty = "take_addresses"
        limit = (
            'size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()\n'
            "resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 30), resource.RLIM_INFINITY))"
        )
    report, _ = reported(
        f"""
{limit}
with Dispatcher([act(timeout=10)], workers=2) as dispatcher:
    good, reasons = scored(dispatcher, [*TEXTS, {guilty!r}])
    print(json.dumps({{"good": good, "reasons": reasons}}))
""",
        tmp_path,
        *prefix,
        **environment,
    )
    assert report["good"]
    (found,) = report["reasons"]
    assert re.match(reason, found)
