"""Process exits and forks: functions that end their process or keep it from ending, and children
that are forked while threads of the engine wait."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy
import pytest

from guerdon import Dispatcher, StatefulReward, reward
from tests.processes import run_python


def forks_and_leaves(completion: str) -> float:
    pid = os.fork()
    if not pid and completion == "raise":
        raise ValueError(completion)
    return float(os.WEXITSTATUS(os.waitpid(pid, 0)[1])) if pid else 5.0


def test_a_forked_child_that_leaves_its_call_fails_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    with Dispatcher([reward(forks_and_leaves)], workers=1) as dispatcher:
        assert dispatcher.score(completions=["return", "raise"] * 2).rewards.ravel().tolist() == [1.0] * 4
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err


class ClosesNever(StatefulReward):
    def score(self, completion: str) -> float:
        return float(completion)

    def close(self) -> None:
        time.sleep(600)


@pytest.mark.fault(
    "`close()` of a stateful reward hangs",
    sees="the dispatcher's close takes a second longer; the worker is killed",
)
def test_row_28_a_close_that_hangs_is_cut_short() -> None:
    with Dispatcher([reward(ClosesNever())], workers=1) as dispatcher:
        assert dispatcher.score(completions=["2"], num_generations=1).rewards[0, 0, 0] == 2
        start = time.monotonic()
    assert time.monotonic() - start < 40


def draw(completion: str, folder: str) -> dict[str, float]:
    (Path(folder) / str(os.getpid())).touch()
    until = time.monotonic() + 60
    while len(os.listdir(folder)) < 2 and time.monotonic() < until:  # so that each worker gets some
        time.sleep(0.01)
    return {"score": 1.0, "pid": os.getpid(), "random": random.random(), "numpy": float(numpy.random.random())}


@pytest.mark.fault(
    "functions draw random numbers without seeding their generator, in workers that are forks of one process",
    sees="different numbers in each worker, from `random`, NumPy and torch alike",
)
def test_workers_do_not_draw_the_same_numbers(tmp_path: Path) -> None:
    with Dispatcher([reward(draw, lane="process")], workers=2) as dispatcher:
        result = dispatcher.score(completions=["a"] * 12, folder=[str(tmp_path)] * 12, num_generations=1)
    drawn = result.extra
    assert len(set(drawn["draw/pid"])) == 2
    assert len(set(drawn["draw/random"])) == len(set(drawn["draw/numpy"])) == 12


PROGRAM = """
import os, sys, warnings
import guerdon
warnings.simplefilter("ignore")

def length(text):
    return float(len(text))

async def waits(text):
    return 1.0

folder = sys.argv[1]
functions = [guerdon.reward(length, lane="thread"), guerdon.reward(waits)]
dispatcher = guerdon.Dispatcher(functions, journal=folder + "/journal", trace=folder + "/run.pftrace")
dispatcher.score(completions=["a", "bc"])
for _ in range(40):
    # Threads of both lanes, of the journal and of the timeline wait for work now.
    child = os.fork()
    if not child:
        code = 1
        try:
            if dispatcher.score(completions=["ab", "c"]).rewards.ravel().tolist() == [2.0, 1.0, 1.0, 1.0]:
                dispatcher.close()
                code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    print(status, flush=True)
assert dispatcher.score(completions=["abc"]).rewards.ravel().tolist() == [3.0, 1.0]
dispatcher.close()
"""


@pytest.mark.fault(
    "a process is forked while threads of the lanes, a journal and a timeline wait for work",
    sees="scores in the child, from an engine of its own, and in the parent; no child ends by a signal",
)
def test_children_forked_while_threads_wait_score(tmp_path: Path) -> None:
    ended = run_python(PROGRAM, tmp_path, flags=["-W", "ignore"])
    assert ended.stdout.split() == ["0"] * 40
