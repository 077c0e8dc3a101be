"""The loader: loads the functions once, then forks workers that have them.

It forks only without obstacles after loading (`fork_obstacles`). Otherwise it reports the
obstacles, the engine makes it a worker, and the zygote forks workers that load the functions by
themselves.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable

from . import fork_obstacles, fork_server, forking, linux, zygote_requests
from .columns import import_all
from .invoke import tracebacks
from .loaded_functions import Buffer, LoadedFunctions
from .output import flush_output, warn
from .zygote_requests import ControlSocket, ForkRequest


def run(control_fd: int, serialized: Callable[[], Buffer], reported: mmap.mmap) -> None:
    """Loads the functions, reports it, and forks on request until the engine is gone.

    Args:
        control_fd: The control socket.
        serialized: Gives the functions.
        reported: Shared by all loaders of a zygote; its first byte is set after a warning.
    """
    linux.prefer_to_die(linux.LOADER_OOM)
    link = ControlSocket(control_fd)
    # Opened here so that nothing keeps the mapping and its descriptor: before Python 3.11 a caller
    # keeps its arguments until the call returns.
    functions = LoadedFunctions(serialized())
    functions.load_all()
    tracebacks.prepare()
    forking.prepare()
    obstacles = fork_obstacles.find()
    if any(obstacles) and not reported[0]:
        reported[0] = 1
        warn(obstacles.warning())
    try:
        link.reply(zygote_requests.LOADED, 0, 1 + len(obstacles.threads) + len(obstacles.devices))
    except BrokenPipeError:  # the engine was closed meanwhile
        return
    _serve(link, functions)


def _serve(link: ControlSocket, functions: LoadedFunctions) -> None:
    while (request := link.next()) is not None:
        if request.op == zygote_requests.WORKER:
            forking.fork(link, request, lambda: forking.run_worker(request, functions))
        elif request.op == zygote_requests.LOADER:
            forking.fork(link, request, lambda: _serve(ControlSocket(request.fds[0]), functions))
        elif request.op == zygote_requests.BECOME:
            link.reply(request.op, os.getpid())
            link.close()
            forking.run_worker(request, functions)
            return
        elif request.op == zygote_requests.REAP:
            link.reply(request.op, linux.reap(request.value), request.value)
        elif request.op == zygote_requests.PRELOAD:
            link.reply(request.op, 0, 1 + _preload(request))


def _preload(request: ForkRequest) -> int:
    """Imports modules that column values need. Returns the number of new obstacles to forks."""
    with open(request.fds[0], encoding="utf-8") as file:
        modules = file.read().splitlines()
    if request.flags & zygote_requests.TRY_FIRST and not _imports_safely(modules, request.value / 1000):
        return 0
    import_all(modules)
    forking.prepare()
    obstacles = fork_obstacles.find()
    if any(obstacles):
        warn(
            f"warning: {', '.join(sorted(modules))}, which values of columns need, left {obstacles} when imported, so that "
            "workers can't be forked with them. Each worker imports them itself."
        )
    return sum(map(len, obstacles))


def _imports_safely(modules: list[str], patience: float) -> bool:
    """Returns whether a child that imports modules lives on and could fork."""
    flush_output()
    parent = os.getpid()

    def child() -> None:
        os.setpgid(0, 0)
        linux.exit_with_parent(parent)
        import_all(modules)
        if any(fork_obstacles.find()):
            forking.end(1)

    pid = fork_server.fork(child, forking.end)
    until = time.monotonic() + patience
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False
