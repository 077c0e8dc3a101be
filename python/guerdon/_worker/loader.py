"""The loader: loads the functions once, then forks workers that have them.

It forks only if nothing stands against it after loading (`fork_obstacles`); else it says so, the
engine makes it a worker itself, and the zygote forks workers that load the functions themselves.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from . import fork_obstacles, forking, linux, zygote_requests
from .invoke import tracebacks
from .loaded_functions import Buffer, LoadedFunctions
from .output import warn
from .zygote_requests import ControlSocket


def run(control_fd: int, serialized: Callable[[], Buffer], reported: mmap.mmap) -> None:
    """Loads the functions, reports it, and forks on request until the engine is gone.

    Args:
        control_fd: The control socket.
        serialized: Gives the functions.
        reported: Shared by all loaders of a zygote; its first byte says whether one has warned.
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
