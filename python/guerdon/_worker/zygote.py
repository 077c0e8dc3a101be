"""The zygote: it never runs user code, so it can always fork, and it ends all other processes.

- It ends, with every descendant, when the engine closes its socket or its process is gone: a fork
  of the user's program may keep the socket open, so both are watched.
- It is the subreaper: what a worker leaves behind becomes its child when the worker ends, and is
  killed then. Processes that the import of a module left behind are killed at the end.
- Workers and loaders are reaped on request of the engine only, so that a pid is not reused before a
  kill. Orphans are reaped when they end.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable

from . import fork_server, forking, linux, loader, zygote_requests
from .loaded_functions import LoadedFunctions
from .zygote_requests import ControlSocket


class Zygote:
    """The process that the engine starts."""

    def __init__(self, link: ControlSocket, parent: int) -> None:
        self._link = link
        self._parent = parent
        self._functions_fd = -1
        # Forked here and not reaped yet.
        self._forked: set[int] = set()
        # The loaders. Their workers become children of this process when they end.
        self._loaders: set[int] = set()
        # Shared with the loaders: whether one has warned of obstacles to forks.
        self._reported = mmap.mmap(-1, 1)
        # Marks of workers that ended, as long as there is anything that carries them.
        self._ended: set[int] = set()

    def serve(self) -> None:
        """Serves requests until the engine is gone."""
        # The engine's first message: some interpreters lack `os.pidfd_open`.
        request = self._link.next()
        if request is None or os.getppid() != self._parent:
            return
        self._functions_fd, parent = request.fds
        fork_server.serve(self._link.socket.fileno(), parent, self._serve_next, self._reap_orphans)

    def _serve_next(self) -> bool:
        request = self._link.next()
        if request is None or request.op == zygote_requests.END:
            return False
        self._serve(request)
        self._reap_orphans()
        return True

    def _serve(self, request: zygote_requests.ForkRequest) -> None:
        if request.op == zygote_requests.LOADER:
            pid = self._fork(request, lambda: loader.run(request.fds[0], self._serialized, self._reported))
            if pid is not None:
                self._loaders.add(pid)
        elif request.op == zygote_requests.KNOW:
            self._loaders.add(request.value)
        elif request.op == zygote_requests.WORKER:
            self._fork(request, lambda: forking.run_worker(request, LoadedFunctions(self._serialized())))
        elif request.op == zygote_requests.ORPHANS:
            self._ended.add(request.value)
        elif request.op == zygote_requests.REAP:
            status = linux.reap(request.value)
            self._forked.discard(request.value)
            self._loaders.discard(request.value)
            self._link.reply(request.op, status, request.value)

    def _fork(self, request: zygote_requests.ForkRequest, child: Callable[[], None]) -> int | None:
        pid = forking.fork(self._link, request, child)
        if pid is not None:
            self._forked.add(pid)
        return pid

    def _serialized(self) -> mmap.mmap:
        serialized = mmap.mmap(self._functions_fd, 0, access=mmap.ACCESS_READ)
        os.close(self._functions_fd)
        return serialized

    def _reap_orphans(self) -> None:
        """Kills the children of ended workers, and reaps children not forked here.

        Their own children become ours as they die, which calls this again. Those that may be
        workers of a loader that ended are not reaped.
        """
        keep = any(linux.is_gone(pid) for pid in self._loaders)
        again = True
        while again:
            again, found = False, set()
            for pid in linux.children():
                if pid in self._forked:
                    continue
                if not linux.has_ended(pid):
                    if self._ended and (mark := linux.mark_of(pid)) in self._ended:
                        found.add(mark)
                        linux.kill(pid)
                elif keep:
                    found.update(self._ended)
                else:
                    linux.reap(pid)
                    again = True  # children that it left may not have been listed yet
        self._ended = found


def main(parent: int) -> None:
    """Runs the zygote; standard input is the control socket."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # inherited from the starting thread
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _close_inherited()
    fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    linux.adopt_orphans()
    linux.no_core_dumps()
    forking.prepare()
    zygote = Zygote(ControlSocket(fd), parent)
    status = 1
    try:
        zygote.serve()
        status = 0
    finally:
        fork_server.sweep()
        forking.end(status)


def _close_inherited() -> None:
    """Closes descriptors that the trainer's libraries left inheritable, such as open ports."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:  # the one of the listing
                continue
