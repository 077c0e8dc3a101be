"""Forking workers, in the zygote and in the loader.

- A child leads a process group before its pid is reported, so that a kill of the group includes it.
- A child gets only the descriptors passed to it, and never returns into its parent's loop, even if
  it raises.
- Forks draw different random numbers: NumPy's and torch's generators are reseeded, if loaded.
- Work that is the same in all children is done before the first fork (`prepare`): every page to
  which a fork writes, if only a reference count, costs time and memory.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from . import fork_server, linux, stack_dump
from .loaded_functions import LoadedFunctions
from .output import OutputMarkers, flush_output
from .shared_page import SharedPage
from .wire import SupervisorSocket
from .worker import Worker
from .zygote_requests import LOAD_FIRST, ControlSocket, ForkRequest, close_all

# The user code's handler of SIGCHLD at import: not for this process, but for its workers. Written
# by `prepare`.
_child_handler: Any = None


def fork(control: ControlSocket, request: ForkRequest, child: Callable[[], None]) -> int | None:
    """Forks for a request and replies with the child's pid, which it returns, or the error."""
    parent = os.getpid()
    flush_output()

    def run() -> None:
        os.setpgid(0, 0)
        linux.exit_with_parent(parent)
        control.close()
        child()

    try:
        pid = fork_server.fork(run, end)
    except OSError as error:
        close_all(request.fds)
        control.reply(request.op, -(error.errno or 1))
        return None
    try:
        os.setpgid(pid, pid)  # in both processes, whichever runs first
    except OSError:  # it has ended, or has done it
        pass
    close_all(request.fds)
    control.reply(request.op, pid)
    return pid


def run_worker(request: ForkRequest, functions: LoadedFunctions) -> None:
    """Makes this process a worker and serves until it ends."""
    linux.mark_descendants(request.value)
    linux.prefer_to_die(linux.WORKER_OOM)
    linux.yield_to_trainer()
    _restore_signals()
    socket_fd, page_fd, output_fd, stack_fd = request.fds
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    markers = OutputMarkers(output_fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    page = SharedPage(page_fd, stack_fd)
    os.close(page_fd)
    stack_dump.enable(stack_fd, page.words)
    if request.flags & LOAD_FIRST:
        functions.load_all()
        flush_output()
    reseed()
    Worker(SupervisorSocket(linux.to_high_descriptor(socket_fd)), page, functions, markers).serve()


def _restore_signals() -> None:
    """Gives user code its handler of SIGCHLD back, and us the timeout signal, if imports blocked
    it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGURG})
    if _child_handler is not None:
        signal.signal(signal.SIGCHLD, _child_handler)


def reseed() -> None:
    """Seeds the global generators of NumPy and torch; Python reseeds `random` itself."""
    for module, generator in (("numpy.random", "mtrand"), ("torch", "default_generator")):
        try:
            found = getattr(sys.modules[module], generator)
            found.seed()
        except Exception:  # not loaded, half loaded, or another module of that name
            continue


def prepare() -> None:
    """Prepares this process for forks; again after loading, since user code may have changed it."""
    for stream in (sys.stdout, sys.stderr):
        # Flush at line ends, and escape what the encoding lacks: printing must not fail a call.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, errors="backslashreplace")
    flush_output()
    faulthandler.enable(2)  # a crash in C prints the Python stack
    stack_dump.choose_signal()
    # A process that ignores SIGCHLD gets no exit status of its children. None: a handler of C code.
    global _child_handler
    handler = signal.getsignal(signal.SIGCHLD)
    if handler is not None and handler is not signal.SIG_DFL:
        _child_handler = handler
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.collect()
    gc.freeze()  # the collector won't write to pages shared by all children


def end(status: int) -> None:
    """Ends this process at once, without exit handlers of libraries."""
    try:
        if status and sys.exc_info()[1] is not None:
            sys.excepthook(*sys.exc_info())
        flush_output()
    finally:  # the hook may be user code, and a child must not return into its parent's loop
        os._exit(status)
