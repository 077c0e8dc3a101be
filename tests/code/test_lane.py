"""Code rewards in a dispatcher: the lane `code`."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import (
    DataError,
    Dispatcher,
    Journal,
    RegistrationError,
    SandboxFusion,
    Status,
    code_reward,
    read_journal,
    reward,
)
from tests.clock import eventually
from tests.code.programs import CASES, INCREMENT, block
from tests.monitor import reading
from tests.processes import gone

SLEEP = "import time\ntime.sleep(60)"


def made(**options: Any) -> Any:
    return code_reward(**{"isolation": "none", "timeout": 5.0, **options})


def test_scores_reasons_and_neighbours() -> None:
    programs = [INCREMENT, "pass", "while True: pass", "import os; os._exit(0)", "1/0", "print(2)"]
    length = reward(lambda completion: float(len(completion)), name="length", lane="thread")
    code = made(timeout=1.0, score="share")
    with Dispatcher([code, length], workers=2) as dispatcher:
        result = dispatcher.score(
            completions=[block(program) for program in programs],
            cases=[CASES] * len(programs),
            text=["a task"] * len(programs),  # a name that is reserved
            num_generations=3,
        )
    assert result.rewards.shape == (2, 3, 2)
    assert result.rewards[..., 0].ravel().tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert (result.status == Status.OK).all()
    assert result.extra["code/passed"] == [2, 0, 0, 0, 0, 1]
    assert result.extra["code/reason"][4].startswith("case 0: exit status 1: ZeroDivisionError")
    assert result.extra["code/reason"][0] == ""


@pytest.mark.fault("a row without cases, in a dispatcher", sees="NaN with a reason; its neighbours have scores")
def test_faults_of_others_are_nan() -> None:
    with Dispatcher([made()], workers=1, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=[block(INCREMENT)] * 3, cases=[CASES, [], "{"], num_generations=3)
    assert np.isnan(result.rewards.ravel()[1:]).all()
    assert result.rewards.ravel()[0] == 1.0
    assert [failure.reason.split(":")[0] for failure in result.failures()] == ["DataError"] * 2
    assert "column 'cases' is empty" in result.failures()[0].reason


def test_a_missing_column_is_refused_before_any_call() -> None:
    with Dispatcher([made()]) as dispatcher, pytest.raises(DataError, match="'cases'"):
        dispatcher.score(completions=[""])


def test_it_works_undecorated_beside_dispatchers_copies() -> None:
    """Two dispatchers and a plain call share nothing."""
    code = made()
    with Dispatcher([code]) as one, Dispatcher([code]) as other:
        batch = {"completions": [block(INCREMENT)], "cases": [CASES]}
        assert [each.score(**batch).rewards.item() for each in (one, other)] == [1.0, 1.0]
        assert code(**batch) == [1.0]
    code.close()


@pytest.mark.fault("a worker of the code lane is killed", sees="its sample is tried again elsewhere")
def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = f"import os, time\nif not os.path.exists({str(marker)!r}):\n    open({str(marker)!r}, 'w').write(str(os.getpid()))\n    time.sleep(60)\nprint(1)"
    with Dispatcher([made(timeout=30)], workers=1) as dispatcher:
        pending = dispatcher.submit(completions=[block(program)], cases=[[{"stdin": "", "stdout": "1"}]])
        eventually(lambda: marker.exists() and marker.read_text())
        (worker,) = dispatcher.worker_pids()
        os.kill(worker, signal.SIGKILL)
        result = pending.result(timeout=60)
        assert (result.rewards.item(), result.attempts.item()) == (1.0, 2)
        eventually(lambda: gone([int(marker.read_text())]))


def test_closing_ends_programs_that_run(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    with Dispatcher([made(timeout=60)], workers=1) as dispatcher:
        dispatcher.submit(completions=[block(program)], cases=[CASES])
        eventually(lambda: marker.exists() and marker.read_text())
    eventually(lambda: gone([int(marker.read_text())]))


def test_the_lane_has_its_name_wherever_lanes_are_shown(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    trace = tmp_path / "trace.pftrace"
    with Dispatcher([made(timeout=20)], workers=1, journal=journal, trace=trace, metrics_port=0) as dispatcher:
        pending = dispatcher.submit(completions=[block(SLEEP)], cases=[CASES])
        eventually(lambda: len(dispatcher.dump()) == 1)
        (call,) = dispatcher.dump()
        assert (call.function, call.lane) == ("code", "code")
        pending.cancel()
        dispatcher.score(completions=[block("print(2)")], cases=[CASES[:1]])
    assert b"code (code)" in trace.read_bytes()
    assert read_journal(tmp_path / "journal")


def test_other_functions_are_refused_on_the_lane() -> None:
    with pytest.raises(RegistrationError, match=r"guerdon\.code_reward"):
        reward(lambda completion: 1.0, lane="code")


def test_outcomes_are_kept_for_the_same_options(tmp_path: Path) -> None:
    batch = {"completions": [block("import time\nprint(time.time_ns())")] * 2, "cases": [CASES[:1]] * 2}
    reasons = []
    for options in ({}, {}, {"score": "share"}):
        with Dispatcher([made(cache=tmp_path / "outcomes", **options)], workers=1) as dispatcher:
            reasons.append(dispatcher.score(**batch).extra["code/reason"])
    assert reasons[0][0] == reasons[0][1]  # run once
    assert reasons[1] == reasons[0] != reasons[2]


def test_functions_ask_for_its_score() -> None:
    """`run_if=` of other functions, and its own."""
    short = reward(lambda text: float(len(text) < 200), name="short", lane="thread")
    with Dispatcher([short, made(run_if={"short": "> 0"}, otherwise=0.0)], workers=1) as dispatcher:
        result = dispatcher.score(completions=[block(INCREMENT), block(INCREMENT + "#" * 200)], cases=[CASES] * 2)
    assert result.rewards[..., 1].ravel().tolist() == [1.0, 0.0]
    assert result.status[..., 1].ravel().tolist() == [Status.OK, Status.SKIPPED]


NAME = "guerdon_code_isolation_info"


def test_the_level_is_in_metrics_log_and_result(caplog: pytest.LogCaptureFixture) -> None:
    strict = code_reward(timeout=5.0)
    loose = code_reward(name="loose", isolation="none")
    far = code_reward(name="far", remote=SandboxFusion("http://127.0.0.1:9"), run_if={"code": "< 0"})
    length = reward(lambda text: float(len(text)), name="length", lane="thread")
    with (
        caplog.at_level(logging.INFO, "guerdon"),
        Dispatcher([strict, loose, far, length], workers=1, metrics_port=0) as dispatcher,
    ):
        for _ in range(2):
            result = dispatcher.score(completions=[block(INCREMENT)], cases=[CASES])
        found = reading.series(reading.families(reading.text(dispatcher)))
    levels = {labels["function"]: labels for name, given in found if name == NAME for labels in [dict(given)]}
    assert set(levels) == {"code", "loose", "far"}
    assert all(number == 1 for (name, _), number in found.items() if name == NAME)
    assert levels["code"]["level"] == strict.level.name == "strict"
    assert levels["code"]["layers"].split(",") == [layer for layer, _ in strict.level.held]
    assert [one for one in levels["code"]["missing"].split(",") if one] == [layer for layer, _ in strict.level.missing]
    assert (levels["loose"]["level"], levels["loose"]["layers"]) == ("none", "")
    assert levels["far"]["level"] == "remote"
    assert result.extra["code/isolation"] == ["strict"]
    assert result.extra["loose/isolation"] == ["none"]
    logged = [record.getMessage() for record in caplog.records if "isolation of programs" in record.getMessage()]
    assert logged == [f"{one.name}: isolation of programs: {one.level}" for one in (strict, loose, far)], "once a run"
    assert f"code: isolation of programs: strict: {strict.level.held[0][0]}" in logged[0]
