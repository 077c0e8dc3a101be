"""Checks that the functions can run on this machine, before any call: a process like a worker loads
them one after another, runs `setup()` and `close()`, and writes a line of JSON for each.

Nothing that an import started outlives it, however the import ended: a process that runs no user
code watches over the one that does, and ends it when asked to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from . import forking, linux
from .invoke.awaiter import Awaiter
from .invoke.reasons import reason_of, setup_reason_of
from .loaded_functions import LoadedFunctions, LoadFailure
from .zygote import Zygote


def main() -> None:
    """Runs the entry ``setup`` of ``_zygote.py`` in a process that leaves nothing behind. SIGTERM
    ends it, and so does the end of the process whose pid is the second argument."""
    signal.signal(signal.SIGTERM, lambda *_: _end())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it may be ignored where the command runs
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    linux.adopt_orphans()
    linux.exit_with_parent(int(sys.argv[2]), signal.SIGTERM)
    pid = os.posix_spawn(sys.executable, [sys.executable, sys.argv[0], "setup"], os.environ)
    os.waitpid(pid, 0)
    _end()


def _end() -> None:
    Zygote.end()
    os._exit(0)


def run() -> None:
    """Checks the serialized functions from stdin, writes to stdout, and ends the process; what user
    code prints goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with os.fdopen(os.dup(0), "rb") as file:
        serialized = file.read()
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # The old one may believe that it can seek: stdout may have been a file, and stderr be a pipe.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    linux.no_core_dumps()
    forking.prepare()
    status = 1
    try:
        _check(LoadedFunctions(serialized), results)
        status = 0
    finally:
        forking.end(status)


def _check(functions: LoadedFunctions, results: Any) -> None:
    for index in functions.indexes():
        # Said before, so that a function that ends the process is known.
        print(json.dumps({"function": index}), file=results, flush=True)
        print(json.dumps({"function": index, "error": _fault(functions, index)}), file=results, flush=True)


def _fault(functions: LoadedFunctions, index: int) -> str | None:
    """Why the function can't run here."""
    call = functions.get(index)
    if isinstance(call, LoadFailure):
        return call.reason
    awaiter = Awaiter(_warn)
    try:
        _finish(awaiter, call.setup())
    except BaseException as error:  # SystemExit too
        return setup_reason_of(error)
    try:
        _finish(awaiter, call.close())
    except BaseException as error:
        return f"close() failed: {reason_of(error)}"
    finally:
        awaiter.close()
    return None


def _finish(awaiter: Awaiter, raw: Any) -> None:
    if hasattr(type(raw), "__await__"):
        awaiter.run(raw)


def _warn(text: str) -> None:
    print(text, file=sys.stderr)
