"""Measures the cost of loading the functions, for ``guerdon info FILE``: a process like the loader
loads them one after another and writes a line of JSON for each.

- It runs in the workers' environment, and calls no function.
- A module that several functions share counts for the first of them.
- No process that an import started outlives it, however the import ended: a supervising process
  without user code ends the other processes, also on SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from . import fork_obstacles, fork_server, forking, linux
from .loaded_functions import LoadedFunctions, LoadFailure


def main(entry: str) -> None:
    """Runs that entry of ``_zygote.py`` in a separate process, which leaves nothing behind; SIGTERM
    ends it, and so does the end of the requesting process, whose pid is the second argument."""
    signal.signal(signal.SIGTERM, lambda *_: _end())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it may be ignored where the command runs
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    linux.adopt_orphans()
    linux.exit_with_parent(int(sys.argv[2]), signal.SIGTERM)
    pid = os.posix_spawn(sys.executable, [sys.executable, sys.argv[0], entry], os.environ)
    os.waitpid(pid, 0)
    _end()


def _end() -> None:
    fork_server.sweep()
    os._exit(0)


def load() -> None:
    """Measures the serialized functions that come on stdin."""
    on_functions(_measure)


def on_functions(do: Callable[[LoadedFunctions, Any], None]) -> None:
    """Calls `do` with the serialized functions from stdin, and with stdout for its lines; what user
    code prints goes to stderr. Ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with os.fdopen(os.dup(0), "rb") as file:
        serialized = file.read()
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # The old object may be seekable: stdout may have been a file, and stderr may be a pipe.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    linux.no_core_dumps()
    forking.prepare()
    status = 1
    try:
        do(LoadedFunctions(serialized), results)
        status = 0
    finally:
        forking.end(status)


def _measure(functions: LoadedFunctions, results: Any) -> None:
    for index in functions.indexes():
        before, found_before = _own_bytes(), fork_obstacles.find()
        start = time.monotonic()
        loaded = functions.get(index)
        seconds = time.monotonic() - start
        found = fork_obstacles.find()
        line = {
            "function": index,
            "import_s": seconds,
            "import_bytes": max(0, _own_bytes() - before),
            "threads": _added(found.threads, found_before.threads),
            "devices": _added(found.devices, found_before.devices),
            "error": loaded.reason if isinstance(loaded, LoadFailure) else None,
        }
        print(json.dumps(line), file=results, flush=True)
    loaded_bytes = _own_bytes()
    forking.prepare()
    found = fork_obstacles.find()
    worker = {
        "start": "load" if any(found) else "fork",
        "memory_bytes": loaded_bytes if any(found) else _forked_bytes(),
        "loaded_bytes": loaded_bytes,
        "threads": found.threads,
        "devices": found.devices,
    }
    print(json.dumps(worker), file=results, flush=True)


def _added(after: tuple[str, ...], before: tuple[str, ...]) -> list[str]:
    """Returns the entries that occur more often in `after` than in `before`."""
    return sorted((Counter(after) - Counter(before)).elements())


def _forked_bytes() -> int:
    """Returns the private memory of a fork of this process when it is ready."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            forking.reseed()
            os.write(writer, b"%d" % _own_bytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return int(answer or 0)


def _own_bytes() -> int:
    """Memory that no other process shares."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith(b"Private_"))
    except OSError:  # a kernel without it
        return 0
