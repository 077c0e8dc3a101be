"""The stem: the light half of the zygote. It never runs user code, so it can always fork, and it ends all others.

- S-1  It ends, with every descendant, when the engine closes its socket or its process is gone: a fork of the user's
       program may hold the socket open, so both are watched.
- S-2  It is the subreaper: what a worker leaves behind, daemonised too, becomes its child and is killed at the end.
- S-3  Workers and loaders are reaped only when the engine says so: until then their pids can't be reused under a kill.
       Orphans are reaped when they end.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
from collections.abc import Callable

from . import control, forking, linux, loader
from .control import ControlSocket
from .loaded_functions import LoadedFunctions


class Zygote:
    """The process that the engine starts."""

    def __init__(self, link: ControlSocket, parent: int) -> None:
        self._link = link
        self._parent = parent
        self._shipment = -1
        # Forked here and not reaped yet.
        self._forked: set[int] = set()
        # The last loader, whose workers become children of this process when it ends.
        self._loader = 0
        # A request is being served: a child just forked is not in `_forked` yet.
        self._serving = False

    def serve(self) -> None:
        """Serves the engine until it is gone."""
        parent = os.pidfd_open(self._parent)
        if os.getppid() != self._parent:
            return
        poll = select.poll()
        poll.register(self._link.socket, select.POLLIN)
        poll.register(parent, select.POLLIN)
        signal.signal(signal.SIGCHLD, self._reap_orphans)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if parent in ready:
                return  # S-1
            request = self._link.next()
            if request is None or request.op == control.END:
                return
            self._serving = True
            self._serve(request, parent)
            self._serving = False
            self._reap_orphans()

    def _serve(self, request: control.ForkRequest, parent: int) -> None:
        if request.op == control.SHIPMENT:
            self._shipment = request.fds[0]
        elif request.op == control.LOADER:
            self._loader = self._fork(request, parent, lambda: loader.run(request.fds[0], self._content)) or 0
        elif request.op == control.WORKER:
            self._fork(request, parent, lambda: forking.run_worker(request, LoadedFunctions(self._content())))
        elif request.op == control.REAP:
            status = linux.reap(request.value)
            self._forked.discard(request.value)
            if request.value == self._loader:
                self._loader = 0
            self._link.reply(request.op, status, request.value)

    def _fork(self, request: control.ForkRequest, parent: int, run: Callable[[], None]) -> int | None:
        def child() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(parent)
            run()

        pid = forking.fork(self._link, request, child)
        if pid is not None:
            self._forked.add(pid)
        return pid

    def _content(self) -> mmap.mmap:
        content = mmap.mmap(self._shipment, 0, access=mmap.ACCESS_READ)
        os.close(self._shipment)
        return content

    def _reap_orphans(self, *_: object) -> None:
        """Reaps what ended and was not forked here, unless it may be a worker of a loader that ended (S-3)."""
        if self._serving:
            return
        for pid in linux.children():
            if pid not in self._forked and linux.has_ended(pid):
                if self._loader and linux.has_ended(self._loader):
                    return
                linux.reap(pid)

    @staticmethod
    def end() -> None:
        """Kills every descendant and waits for it (S-2): the children of a killed child become ours, until there is none."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        while True:
            for pid in linux.children():
                linux.kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def main(parent: int) -> None:
    """Runs the stem; standard input is the control socket."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # inherited from the thread that started us
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _close_inherited()
    fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    linux.adopt_orphans()
    forking.prepare()
    stem = Zygote(ControlSocket(fd), parent)
    status = 1
    try:
        stem.serve()
        status = 0
    finally:
        stem.end()
        forking.end(status)


def _close_inherited() -> None:
    """Closes what the trainer's libraries left open across exec: a port of theirs must not live on in workers."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                continue
