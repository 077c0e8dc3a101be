"""Children forked while threads of the engine wait: nothing of the parent's threads is left there,
and they start engines of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["0"] * 40
