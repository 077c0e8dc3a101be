"""The loader: the loaded half of the zygote. It loads the functions once and then forks workers that have them.

- L-1  It forks only if it is single-threaded after loading; else the engine makes it a worker and lets the stem fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from . import control, forking, linux
from .control import ControlSocket
from .loaded_functions import Buffer, LoadedFunctions


def run(control_fd: int, shipment: Callable[[], Buffer]) -> None:
    """Loads the shipment, says so, and forks as asked until the engine is gone."""
    link = ControlSocket(control_fd)
    # Opened here and held by nobody: a mapping keeps a descriptor that workers have no use for, and until Python 3.11 a caller keeps
    # its arguments while the call lasts.
    functions = LoadedFunctions(shipment())
    functions.load_all()
    forking.prepare()
    try:
        link.reply(control.LOADED, 0, linux.threads())
    except BrokenPipeError:  # the engine was closed meanwhile
        return
    while (request := link.next()) is not None:
        if request.op == control.WORKER:
            forking.fork(link, request, lambda: forking.run_worker(request, functions))
        elif request.op == control.BECOME:
            link.reply(request.op, os.getpid())
            link.close()
            forking.run_worker(request, functions)
            return
        elif request.op == control.REAP:
            link.reply(request.op, linux.reap(request.value), request.value)
