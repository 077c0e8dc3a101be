"""Signals and locks: functions that resist being stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from guerdon import Status
from tests.stress.harness import Scene, expect

TIMED_OUT = "no answer within the timeout of 3 s"


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(
            "ignore_polite_signals",
            marks=pytest.mark.fault(
                "a function ignores SIGTERM, SIGALRM, SIGINT and SIGHUP, and hangs",
                sees="`timeout`, with its stack",
            ),
        ),
        pytest.param(
            "block_all_signals",
            marks=pytest.mark.fault(
                "a function blocks all signals, and hangs",
                sees="`timeout`: its worker is killed a grace after its timeout",
            ),
        ),
        pytest.param(
            "replace_all_handlers:hang",
            marks=pytest.mark.fault(
                "a function puts handlers of its own in place of all, the one of the timeout signal too, and hangs",
                sees="`timeout`: its worker is killed a grace after its timeout",
            ),
        ),
        pytest.param(
            "swallow_everything",
            marks=pytest.mark.fault(
                "a function catches every exception, the timeout's too, and goes on",
                sees="`timeout`: its worker is killed a grace after its timeout",
            ),
        ),
        pytest.param(
            "hold_the_gil:60",
            marks=pytest.mark.fault(
                "a function holds the GIL in C for a minute",
                sees="`timeout`: its worker is killed a grace after its timeout",
            ),
        ),
        pytest.param(
            "signal_itself:19",
            marks=pytest.mark.fault(
                "a worker is stopped (SIGSTOP) amid a call",
                sees="`timeout`: its worker is killed a grace after its timeout",
            ),
        ),
    ],
)
def test_a_call_that_can_not_be_interrupted_is_killed(deed: str, tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        failure = scene.commit(deed)
    expect(failure, Status.TIMEOUT, TIMED_OUT)
    assert failure is not None
    assert failure.run_s < 40  # the shortest of these would end after 60 s


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


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        pytest.param(
            "signal_itself:15",
            "was killed by SIGTERM",
            marks=pytest.mark.fault("a worker gets a SIGTERM", sees="`crashed`, after one more try alone"),
        ),
        pytest.param(
            "kill_its_group",
            "was killed by SIGKILL",
            marks=pytest.mark.fault(
                "a function kills its own process group",
                sees="`crashed`, after one more try alone; the trainer and the other workers are in other groups",
            ),
        ),
    ],
)
def test_a_worker_that_is_killed_costs_one_call(deed: str, reason: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        failure = scene.commit(deed)
    expect(failure, Status.CRASHED, reason)
    assert failure is not None
    assert failure.attempts == 2
