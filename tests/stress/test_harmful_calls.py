"""Calls that harm their worker: each says in its cell what happened, and nobody else notices."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import Status
from tests.faults import fault
from tests.stress.harness import Scene, expect, gone, wait_for

CRASHED, ERROR = Status.CRASHED, Status.ERROR
CLOSED = "the worker process closed its connection to the engine"
F_SEAL_FUTURE_WRITE = 0x10  # Python's fcntl has no name for it


# Deeds that never end by themselves, or after a minute.
STUCK: list[Any] = [
    fault(
        "a function ignores SIGTERM, SIGALRM, SIGINT and SIGHUP, and hangs",
        sees="`timeout`, with its stack",
        of=("ignore_polite_signals",),
    ),
    fault(
        "a function blocks all signals, and hangs",
        sees="`timeout`: its worker is killed a grace after its timeout",
        of=("block_all_signals",),
    ),
    fault(
        "a function puts handlers of its own in place of all, the one of the timeout signal too, and hangs",
        sees="`timeout`: its worker is killed a grace after its timeout",
        of=("replace_all_handlers:hang",),
    ),
    fault(
        "a function catches every exception, the timeout's too, and goes on",
        sees="`timeout`: its worker is killed a grace after its timeout",
        of=("swallow_everything",),
    ),
    fault(
        "a function holds the GIL in C for a minute",
        sees="`timeout`: its worker is killed a grace after its timeout",
        of=("hold_the_gil:60",),
    ),
    fault(
        "a worker is stopped (SIGSTOP) amid a call",
        sees="`timeout`: its worker is killed a grace after its timeout",
        of=("signal_itself:19",),
    ),
    fault(
        "a worker sends messages without end",
        sees="`timeout`, in time",
        of=("talk_without_end",),
    ),
]


def test_calls_that_can_not_be_interrupted_are_killed(tmp_path: Path) -> None:
    deeds = {str(deed): tmp_path / str(place) for place, (deed,) in enumerate(row.values for row in STUCK)}
    for folder in deeds.values():
        folder.mkdir()
    with Scene(tmp_path, timeout=3.0, workers=len(deeds) + 1) as scene:
        failures = scene.commit_all(deeds)
    for failure in failures.values():
        failure = expect(failure, Status.TIMEOUT, "no answer within the timeout of 3 s")
        assert failure.attempts == 1
        assert failure.run_s < 40  # the shortest of these would end after 60 s


@pytest.mark.parametrize(
    ("deed", "status", "reason"),
    [
        # Signals.
        fault(
            "a worker gets a SIGTERM",
            sees="`crashed`, after one more try alone",
            of=("signal_itself:15", CRASHED, "was killed by SIGTERM"),
        ),
        fault(
            "a function kills its own process group",
            sees="`crashed`, after one more try alone; the trainer and the other workers are in other groups",
            of=("kill_its_group", CRASHED, "was killed by SIGKILL"),
        ),
        # Ends of its process, and what keeps it from ending.
        fault(
            "a function calls `os.abort`, as C libraries do when they give up",
            sees="`crashed`, after one more try alone, with the Python stack",
            of=("abort", CRASHED, "was killed by SIGABRT"),
        ),
        fault(
            "a function overflows the C stack",
            sees="`crashed`, after one more try alone, with the Python stack",
            of=("overflow_the_stack", CRASHED, "was killed by SIGSEGV"),
        ),
        fault(
            "a function replaces its process by another program (`os.execv`)",
            sees="`crashed`: the program holds none of the worker's connections",
            of=("exec_something_else", CRASHED, CLOSED),
        ),
        fault(
            "a function leaves an exit handler that waits for a lock for ever, and calls `sys.exit`",
            sees="`error`: SystemExit; the worker lives, and ends at once when the dispatcher is closed",
            of=("deadlock_at_exit", ERROR, "SystemExit: 3"),
        ),
        fault(
            "a function starts threads that never end, daemonic or not",
            sees="its value; the threads end with the worker, which ends at once when the dispatcher is closed",
            of=("start_endless_threads", Status.OK, ""),
        ),
        fault(
            "a function calls `sys.exit` in a thread",
            sees="its value: only the thread ends",
            of=("exit_in_a_thread", Status.OK, ""),
        ),
        fault(
            "a function forks and both processes return from it",
            sees="one value: the child can't answer, and ends",
            of=("fork_and_return_twice", Status.OK, ""),
        ),
        # Descriptors, folders and streams.
        fault(
            "a function closes all file descriptors and returns",
            sees="its value, from shared memory; the worker is replaced",
            of=("close_every_descriptor", Status.OK, ""),
        ),
        fault(
            "a function closes all file descriptors and hangs",
            sees="`crashed`, after one more try alone: the worker closed its connection to the engine",
            of=("close_every_descriptor:hang", CRASHED, CLOSED),
        ),
        fault(
            "a function changes into a folder that is removed",
            sees='its value; later calls in its worker have that working directory too (`isolation="call"` keeps calls apart)',
            of=("lose_its_folder", Status.OK, ""),
        ),
        fault(
            "a function opens files until there are no more descriptors",
            sees="`error`: OSError, too many open files",
            of=("use_up_descriptors", ERROR, "Too many open files"),
        ),
        fault(
            "a function puts objects that raise in place of `sys.stdout` and `sys.stderr`",
            sees="its value; the worker goes on",
            of=("break_the_streams", Status.OK, ""),
        ),
        # Messages that no worker of ours sends.
        fault(
            "a worker announces a message of 4 GiB",
            sees="`crashed`, after one more try alone; no memory is allocated for it",
            of=(
                "announce_four_gigabytes",
                CRASHED,
                "it sent a message of 4294967295 bytes, which is too large",
            ),
        ),
        fault(
            "a worker reports on a frame it never got",
            sees="`crashed`, its call only",
            of=("answer_for_an_unknown_frame", CRASHED, "a message about a call that it does not run"),
        ),
    ],
)
def test_a_harmful_call_fails_alone(deed: str, status: Status, reason: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        failure = scene.commit(deed)
        wait_for(lambda: gone(scene.pids()), "what it started ends")
        closing = time.monotonic()
    assert time.monotonic() - closing < 40
    if failure is None:
        assert status is Status.OK
        return
    expect(failure, status, reason)
    assert failure.attempts == (2 if status is CRASHED else 1)
    if reason in ("was killed by SIGABRT", "was killed by SIGSEGV"):
        assert f"in {deed}" in (failure.traceback or ""), failure.traceback


@pytest.mark.fault(
    "a function writes garbage to every descriptor it can find",
    sees="`crashed`, after one more try alone: its worker sent an invalid message; the garbage is printed as its output",
)
def test_garbage_on_every_descriptor_costs_one_call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit("write_garbage_everywhere"), CRASHED, "was killed: it sent a message")
    assert "[guerdon act " in capfd.readouterr().err


@pytest.mark.fault(
    "a function replaces all signal handlers and returns; a later call hangs in its worker",
    sees="its value; the later call is a `timeout` and its worker is killed a grace after it",
)
def test_handlers_that_are_left_behind_do_no_harm(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        assert scene.commit("replace_all_handlers") is None
        result = scene.score(["replace_all_handlers", "hang"] * 2)
        assert result.status[:, 0, 0].tolist() == [Status.OK, Status.TIMEOUT] * 2
        scene.expect_whole()


@pytest.mark.fault(
    "a function opens the pages of all workers under `/proc/<trainer>/fd` to write values of other calls",
    sees="its own value: the pages are sealed against it",
)
def test_other_workers_pages_can_not_be_written(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        scene.expect_whole()  # all workers are there, if not ready
        wait_for(_pages_are_sealed, "all workers are ready")
        result = scene.score([f"forge_pages:{os.getpid()}"] * 4)
        assert result.rewards.ravel().tolist() == [0.0] * 4
        scene.expect_whole()


def _pages_are_sealed() -> bool:
    """Each worker seals its page as it starts."""
    seals = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if "guerdon-page" in os.readlink(f"/proc/self/fd/{name}"):
                seals.append(fcntl.fcntl(int(name), fcntl.F_GET_SEALS))
    return bool(seals) and all(found & F_SEAL_FUTURE_WRITE for found in seals)
