"""The process that judges ends with the trainer."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

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
