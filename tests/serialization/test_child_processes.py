"""Dispatchers in processes that the user's program starts: spawned, forked by a server, forked,
started by torchrun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serialization.programs import marked, run, write

FUNCTIONS = """
import multiprocessing, os, signal, sys, time
from guerdon import Dispatcher, Status, reward

FACTOR = 3.0

def square(number):
    return number * number

@reward(timeout=60)
def score(completion):
    return len(completion) * FACTOR

@reward(timeout=60)
def pooled(completion):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return float(sum(pool.map(square, range(len(completion)))))

made = Dispatcher([score, pooled], workers=1)

def scores(dispatcher):
    result = dispatcher.score(completions=["abc"])
    assert not result.failures(), result.failures()
    return result.rewards.ravel().tolist()
"""
CHILD = """
def child(inherited, answers):
    with Dispatcher([score, pooled], workers=1) as own:
        answers.put((scores(own), scores(inherited), scores(made)))
    # Nothing is closed: what was inherited ends with the process, which has no exit handlers.

if __name__ == "__main__":
    print(scores(made))
    context = multiprocessing.get_context(sys.argv[1])
    answers = context.Queue()
    process = context.Process(target=child, args=(made, answers), daemon=len(sys.argv) > 2)
    process.start()
    print(answers.get(timeout=60))
    process.join()
    print(process.exitcode, scores(made))
"""


@pytest.mark.parametrize("arguments", [["spawn"], ["forkserver"], ["fork"], ["spawn", "daemon"]], ids=" ".join)
def test_children_of_multiprocessing(arguments: list[str], tmp_path: Path) -> None:
    """The child makes a dispatcher, gets one as an argument, or uses the program's."""
    write(tmp_path, train=FUNCTIONS + CHILD)
    out = run("-W", "ignore::DeprecationWarning", "train.py", *arguments, cwd=tmp_path)
    assert out == "[9.0, 5.0]\n([9.0, 5.0], [9.0, 5.0], [9.0, 5.0])\n0 [9.0, 5.0]\n"


FORKS = """
pending = made.submit(completions=["abc"] * 4)
pid = os.fork()
if pid == 0:
    {child}
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == {status}, status
assert pending.result().rewards[:, 0].ravel().tolist() == [9.0, 5.0] * 4
print(scores(made))
made.close()
"""
CHILDREN = {
    "scores and ends": ("assert scores(made) == [9.0, 5.0]; sys.exit(0)", 0),
    "does nothing": ("os._exit(7)", 7),
    "closes": ("made.close(); os._exit(0)", 0),
    "is killed while it scores": (
        "pending = made.submit(completions=['abc']); os.kill(os.getpid(), signal.SIGKILL)",
        -9,
    ),
    "execs": ("os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(3)'])", 3),
}


@pytest.mark.parametrize("what", CHILDREN)
def test_a_fork_after_the_engine_started(what: str, tmp_path: Path) -> None:
    """The parent has a batch under way, and goes on whatever the child does."""
    child, status = CHILDREN[what]
    write(tmp_path, train=FUNCTIONS + FORKS.format(child=child, status=status))
    assert run("-W", "ignore::DeprecationWarning", "train.py", cwd=tmp_path) == "[9.0, 5.0]\n"


def test_a_worker_survives_its_terminal_and_its_session(tmp_path: Path) -> None:
    """Started with nohup, setsid and every standard stream closed, as launchers do it."""
    program = FUNCTIONS + 'with open("out", "w") as file:\n    file.write(str(scores(made)))\nmade.close()\n'
    write(tmp_path, train=program)
    closed = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for fd in (0, 1, 2):
    os.close(fd)
os.execv(sys.executable, [sys.executable, "train.py"])
"""
    with marked() as environment:
        command = [sys.executable, "-c", closed]
        code = subprocess.call(command, cwd=tmp_path, env=environment, start_new_session=True, timeout=120)
    assert code == 0
    assert (tmp_path / "out").read_text() == "[9.0, 5.0]"
