"""Functions of the user's end, and are loaded where they judge."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from guerdon import DataError
from tests.code.programs import CASES, INCREMENT, call, judged, judgement


class _OnlyHere:
    """A function that can be sent, and not be loaded elsewhere."""

    def __call__(self, candidate: Any) -> bool:
        return bool(candidate() == 3)

    def __reduce__(self) -> Any:
        return _loaded, (os.getpid(),)


def _loaded(where: int) -> _OnlyHere:
    if where != os.getpid():
        raise RuntimeError("only in its own process")
    return _OnlyHere()


def test_a_function_that_can_not_be_loaded_elsewhere_judges_here(caplog: pytest.LogCaptureFixture) -> None:
    with judged(check=_OnlyHere()) as reward:
        assert judgement(reward, "def f(): return 3", entry_point="f").score == 1.0
    assert "only in its own process, so it runs in this process" in caplog.text


def _hangs(expected: object, value: object) -> bool:
    while True:
        pass


@pytest.mark.fault("a function compare= hangs on whatever it is given", sees="no score: it fails on what is expected")
@pytest.mark.usefixtures("soon")
def test_a_compare_that_hangs_on_what_is_expected_gives_no_score() -> None:
    with judged(compare=_hangs) as reward, pytest.raises(DataError, match="fails on what is expected, too"):
        judgement(reward, "def f(): return 3", cases=[call("f", expected=3)])


@pytest.mark.fault("a function extract= hangs on a completion", sees="0.0 with a reason")
@pytest.mark.usefixtures("soon")
def test_an_extract_that_hangs_is_no_escape() -> None:
    def extract(text: str) -> str:
        while "hang" in text:
            pass
        return text

    with judged(extract=extract) as reward:
        assert reward(completions=["hang", INCREMENT], cases=[CASES, CASES]) == [0.0, 1.0]


@pytest.mark.fault("tests of a row hang before they call the program", sees="no score: the tests did not end")
@pytest.mark.usefixtures("soon")
def test_tests_that_hang_by_themselves_give_no_score() -> None:
    with (
        judged(check="test", timeout=1.0) as reward,
        pytest.raises(DataError, match=r"did not end within 0\.5 s before it called"),
    ):
        judgement(reward, "def f(): return 3", test="while True: pass\nassert f() == 3")


def _spin(expected: object, value: Any) -> bool:
    while value == 10:
        pass
    return value == expected


def _repeat(candidate: Any) -> bool:
    return sum(1 for _ in range(candidate())) == 3


@pytest.mark.fault("a function check= or compare= never ends on a program's value", sees="0.0 with a reason")
@pytest.mark.usefixtures("soon")
def test_functions_of_the_users_end() -> None:
    with judged(check=_repeat, timeout=1.0) as reward:
        assert judgement(reward, "def f(): return 3", entry_point="f").score == 1.0
        found = judgement(reward, "def f(): return 10**12", entry_point="f")
        assert (found.score, found.reason) == (0.0, "the tests did not end within 0.5 s with what the program gave")
    with judged(compare=_spin, timeout=1.0) as reward:
        cases = [call("f", expected=3)]
        assert judgement(reward, "def f(): return 3", cases=cases).score == 1.0
        found = judgement(reward, "def f(): return 10", cases=cases)
        assert (found.score, found.reason) == (
            0.0,
            "case 0: compare did not end within 0.5 s with what the program gave",
        )


TRAINER = """
import os, sys, threading
from guerdon import code_reward

def loops(candidate):
    candidate(1)
    os.write(2, f"{os.getpid()}\\n".encode())
    while True:
        pass

reward = code_reward(check=loops, timeout=5.0, isolation="none")
text = "```python\\ndef f(n):\\n    return n\\n```"
thread = threading.Thread(target=lambda: reward(completions=[text], entry_point=["f"]))
thread.start()
thread.join()
"""


def test_a_judge_that_loops_ends_with_a_trainer_that_called_it_in_another_thread() -> None:
    with subprocess.Popen([sys.executable, "-c", TRAINER], stderr=subprocess.PIPE, text=True) as trainer:
        assert trainer.stderr is not None
        judge = next(int(line) for line in trainer.stderr if line.strip().isdigit())
        end = os.pidfd_open(judge)
        try:
            trainer.kill()
            assert select.select([end], [], [], 1.0)[0], "the judge still runs"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(end, signal.SIGKILL)
            os.close(end)
