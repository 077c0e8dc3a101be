"""Forking workers, in the stem and in the loader.

- F-1  A child leads a process group of its own before its pid is told, so that a kill of the group can't miss it.
- F-2  A child holds none of its parent's descriptors but those it was given.
- F-3  Forks of one loader don't draw the same random numbers: what `random` sees to by itself is done for NumPy and torch, if
       they are loaded. A function that wants the same ones each time seeds them.
- F-4  A child never returns into its parent's loop, whatever it raises.
- F-5  What is the same in all children is done before the first fork (`prepare`): a fork pays for every page that it
       writes to, be it a count of references, and those pages are most of what it costs.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable

from . import linux, stack_dump
from .control import LOAD_FIRST, ControlSocket, ForkRequest, close_all
from .loaded_functions import LoadedFunctions
from .output_markers import OutputMarkers
from .resource_limits import flush_output
from .shared_page import SharedPage
from .wire import SupervisorSocket
from .worker import Worker


def fork(control: ControlSocket, request: ForkRequest, child: Callable[[], None]) -> int | None:
    """Forks for a request and answers it with the child's pid, which is returned, or with the error."""
    parent = os.getpid()
    _flush()
    try:
        pid = os.fork()
    except OSError as error:
        close_all(request.fds)
        control.reply(request.op, -(error.errno or 1))
        return None
    if pid == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            linux.die_with(parent)
            control.close()
            child()
            status = 0
        finally:  # F-4
            end(status)
    try:
        os.setpgid(pid, pid)  # F-1
    except OSError:  # it has ended, or has done it
        pass
    close_all(request.fds)
    control.reply(request.op, pid)
    return pid


def run_worker(request: ForkRequest, functions: LoadedFunctions) -> None:
    """Makes this process a worker and serves until its end."""
    socket_fd, page_fd, output_fd, stack_fd = request.fds
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    marks = OutputMarkers(output_fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    page = SharedPage(page_fd)
    os.close(page_fd)
    stack_dump.offer(stack_fd, page.words)
    if request.flags & LOAD_FIRST:
        functions.load_all()
        flush_output()
    _reseed()
    Worker(SupervisorSocket(linux.to_high_descriptor(socket_fd)), page, functions, marks).serve()


def _reseed() -> None:
    """Sets the global generators of NumPy and torch to something that no other fork has (F-3)."""
    for module, generator in (("numpy.random", "mtrand"), ("torch", "default_generator")):
        try:
            found = getattr(sys.modules[module], generator)
            found.seed()
        except Exception:  # not loaded, only half, or another thing of that name
            continue


def prepare() -> None:
    """Readies this process for forks (F-5); once more when user code was loaded, which may have changed any of it."""
    for stream in (sys.stdout, sys.stderr):
        # Lines leave when they end, and no text is refused for its characters: printing must not fail a call.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, errors="backslashreplace")
    flush_output()
    faulthandler.enable(2)  # a crash in C says where Python stood
    stack_dump.choose_signal()
    gc.collect()
    gc.freeze()  # the collector touches nothing that all children share


def end(status: int) -> None:
    """Ends this process at once: no exit handler of a library runs in a fork."""
    if status and sys.exc_info()[1] is not None:
        sys.excepthook(*sys.exc_info())
    _flush()
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed or replaced by user code
            continue
