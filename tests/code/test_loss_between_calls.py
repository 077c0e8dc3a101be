"""A loss in the middle of a judgement is never a score."""

from __future__ import annotations

import errno
import os
import signal
import threading
from typing import Any

import pytest

from guerdon.rewards.code.trusted.calls import ProgramCalls
from guerdon.rewards.code.zygote.zygote_process import ZygoteLostError
from tests.code.programs import in_process, judged, judgement

LENIENT = "try:\n    f(1)\n    f(2)\nexcept Exception:\n    pass\nexcept BaseException:\n    pass"


def _lenient(candidate: Any) -> float:
    try:
        return float(candidate(1) == 1 and candidate(2) == 2)
    except BaseException:
        return 0.5


@pytest.mark.fault(
    "the zygote is killed between the calls of tests, whatever they catch",
    sees="the program is run again; never 0 or 1",
)
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(
    "check",
    ["assert f(1) == 1\nassert f(2) == 2", LENIENT, ["assert f(1) == 1", "assert f(2) == 2"], _lenient],
    ids=["text", "lenient text", "list", "function"],
)
def test_loss_between_calls_is_not_a_score(
    check: Any, always: bool, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = 0, ProgramCalls.call

    def lost(self: ProgramCalls, *arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made == place or (always and made > place):
            raise ZygoteLostError("lost by a test")
        return calls(self, *arguments)

    monkeypatch.setattr(ProgramCalls, "call", lost)
    own = callable(check)
    row = {"entry_point": "f"} if own else {"entry_point": "f", "test": check}
    with judged(check=check if own else "test", isolation="none") as reward:
        in_process(reward)
        if always:
            with pytest.raises(ZygoteLostError, match="lost by a test"):
                judgement(reward, "def f(x): return x", **row)
        else:
            assert judgement(reward, "def f(x): return x", **row).score == 1.0


@pytest.mark.fault("the zygote stands still for longer than a short case", sees="the case is run again")
def test_a_zygote_that_stands_still_is_no_fault_of_a_program() -> None:
    with judged(timeout=5.0, case_timeout=0.3, isolation="none") as reward:
        scorer = in_process(reward)
        scorer.setup()
        assert scorer._zygote is not None
        process = scorer._zygote._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        timer = threading.Timer(0.6, os.kill, (process.pid, signal.SIGCONT))
        timer.start()
        found = judgement(reward, "print(1)", cases=[{"stdin": "", "stdout": "1"}])
        timer.join()
    assert (found.score, found.reason) == (1.0, "")


@pytest.mark.fault("no descriptors are left in the middle of a run", sees="an error, and none is leaked")
def test_descriptors_that_run_out_are_not_leaked(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes, made = os.pipe2, 0

    def few(flags: int) -> tuple[int, int]:
        nonlocal made
        made += 1
        if made == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipes(flags)

    with judged(isolation="none") as reward:
        in_process(reward)
        cases = [{"stdin": "", "stdout": "1"}]
        assert judgement(reward, "print(1)", cases=cases).score == 1.0
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pipe2", few)
        with pytest.raises(OSError, match="Too many open files"):
            judgement(reward, "print(1)", cases=cases)
        assert len(os.listdir("/proc/self/fd")) == before
        assert judgement(reward, "print(1)", cases=cases).score == 1.0
