"""Graders as they are in use elsewhere, to show that the programs of the red team beat them.

Run in the jail alone (`jail`): a list of jobs, each a grader's name, a program and tests, comes as
JSON on standard input; whether each passed goes as JSON to standard output.

- ``human-eval``: the program and its tests are executed in one forked process, and the last line of
  what it executes puts "passed" on a shared list (human-eval's ``check_correctness``).
- ``exit code``: the program and its tests are one file; exit status 0 is a pass (SandboxFusion's
  server, SkyPilot's example).
- ``last line``: the same file, and what it printed last is believed.
- ``unfenced``: the program is run as it is, with an input; a pass is the right output.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
from typing import Any

TIMEOUT_S = 10.0


def human_eval(program: str, tests: str) -> bool:
    """The last line of the tests puts the verdict on the list."""
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        result = manager.list()
        process = context.Process(target=_execute, args=(program + "\n" + tests + "\ncheck(add)\n", result))
        process.start()
        process.join(TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
        return bool(result) and result[0] == "passed"


def _execute(text: str, result: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(text, {})
            result.append("passed")
        except BaseException as error:
            result.append(f"failed: {error}")


def exit_code(program: str, tests: str) -> bool:
    """Exit status 0 is a pass."""
    return _run_file(program + "\n" + tests + "\ncheck(add)\n").returncode == 0


def last_line(program: str, tests: str) -> bool:
    """The last line printed is believed."""
    ended = _run_file(program + "\n" + tests + "\nadd(1, 2)\ncheck(add)\nprint('PASSED')\n")
    return any(line in (b"PASSED", b"1 passed in 0.01s") for line in ended.stdout.splitlines())


def unfenced(program: str, tests: str) -> bool:
    """The program has standard input and output."""
    ended = _run_file(program, b"20 22\n")
    return ended.stdout.strip() == b"42"


def _run_file(text: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    with open("solution.py", "w") as file:
        file.write(text)
    try:
        return subprocess.run(
            [sys.executable, "-s", "solution.py"], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([], 99, b"", b"")
    finally:
        os.unlink("solution.py")


GRADERS = {"human-eval": human_eval, "exit code": exit_code, "last line": last_line, "unfenced": unfenced}


def _main() -> None:
    jobs = json.load(sys.stdin)
    json.dump([GRADERS[grader](program, tests) for grader, program, tests in jobs], sys.stdout)


if __name__ == "__main__":
    _main()
