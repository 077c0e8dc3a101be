"""Runs programs that train in forks of one process that has imported TRL.

The import takes 5 s of processor time, which is most of the time of such a program. A program
still has a separate process, its streams, folder and environment, and ends as usual. The forking
process serves the whole run of pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SERVER: Final = """
import gc, json, os, runpy, signal, sys, tempfile
if os.fork():
    os._exit(0)  # An orphan is not found by tests that look for children of theirs.
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
torch.set_num_threads(1)  # The models are too small for more.
gc.freeze()
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
signal.signal(signal.SIGINT, signal.default_int_handler)
job = json.loads(line)
for number, path in enumerate((os.devnull, job["stdout"], job["stderr"])):
    opened = os.open(path, os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY)
    os.dup2(opened, number)
    os.close(opened)
os.environ.clear()
os.environ.update(job["env"])
tempfile.tempdir = None  # that of the new environment
os.chdir(job["cwd"])
program, *arguments = job["arguments"]
if program == "-m":
    sys.argv = arguments
    sys.path[0] = ""
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
else:
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    main = type(sys)("__main__")
    main.__file__ = program
    sys.modules["__main__"] = main
    exec(compile(open(program).read(), program, "exec"), main.__dict__)
"""

_servers: list[subprocess.Popen[str]] = []


def run(
    arguments: list[str], folder: Path, env: dict[str, str], *, merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS` in `folder` and waits for it.

    Args:
        merged: Standard error is part of the output.
    """
    if not _servers:
        command = [sys.executable, "-c", SERVER]
        pipe = subprocess.PIPE
        # `stop` kills the group, and so the running program.
        _servers.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0))
        _servers[0].wait()
    server = _servers[0]
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as made:
        out, err = Path(made, "out"), Path(made, "out" if merged else "err")
        for path in (out, err):
            path.touch()
        job = {"arguments": arguments, "cwd": str(folder), "env": env, "stdout": str(out), "stderr": str(err)}
        try:
            server.stdin.write(f"{json.dumps(job)}\n")
            server.stdin.flush()
            status = int(server.stdout.readline())
        except BaseException:
            stop()
            raise
        return subprocess.CompletedProcess(arguments, status, out.read_text(), "" if merged else err.read_text())


def stop() -> None:
    """Ends the process that forks, and a program that it still runs."""
    while _servers:
        with _servers.pop() as server, contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
