"""The loader: loads the functions once, then forks workers that have them.

It forks only if it is single-threaded after loading; else the engine makes it a worker itself, and
the zygote forks workers that load the functions themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from . import forking, linux, zygote_requests
from .loaded_functions import Buffer, LoadedFunctions
from .zygote_requests import ControlSocket


def run(control_fd: int, serialized: Callable[[], Buffer]) -> None:
    """Loads the functions, reports it, and forks on request until the engine is gone."""
    link = ControlSocket(control_fd)
    # Opened here so that nothing keeps the mapping and its descriptor: before Python 3.11 a caller
    # keeps its arguments until the call returns.
    functions = LoadedFunctions(serialized())
    functions.load_all()
    forking.prepare()
    try:
        link.reply(zygote_requests.LOADED, 0, linux.thread_count())
    except BrokenPipeError:  # the engine was closed meanwhile
        return
    while (request := link.next()) is not None:
        if request.op == zygote_requests.WORKER:
            forking.fork(link, request, lambda: forking.run_worker(request, functions))
        elif request.op == zygote_requests.BECOME:
            link.reply(request.op, os.getpid())
            link.close()
            forking.run_worker(request, functions)
            return
        elif request.op == zygote_requests.REAP:
            link.reply(request.op, linux.reap(request.value), request.value)
