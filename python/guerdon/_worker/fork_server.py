"""Shared parts of the zygotes of workers and of programs: a loop that serves requests for
forks, the fork itself, and the end of whatever children leave behind.

- A forked child never returns into its parent's loop, even if it raises.
- A request and a look at ended children never interrupt each other.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

from . import linux

# Descriptors of the loop, which no child keeps. Written by `serve`.
_own: list[int] = []


def serve(control: int, parent: int | None, request: Callable[[], bool], children_ended: Callable[[], None]) -> None:
    """Serves until `request`, which takes one from the descriptor `control`, returns False, or the
    process of the pidfd `parent` has ended. `children_ended` is called after a child's end."""
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    watched = [control, wake] if parent is None else [control, wake, parent]
    _own[:] = [*watched[1:], woken]
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)
    poll = select.poll()
    for fd in watched:
        poll.register(fd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if parent in ready:
            return
        if wake in ready:
            os.read(wake, 4096)
            children_ended()
        if control in ready and not request():
            return


def _wake(*_: object) -> None:
    """Handles SIGCHLD: Python writes to the wake-up descriptor only for signals with a handler."""


def fork(child: Callable[[], None], end: Callable[[int], object] = os._exit, by: Callable[[], int] = os.fork) -> int:
    """Forks by `by`, and returns the pid. The child runs `child`, then `end` with 0, or with 1 if
    `child` raised."""
    pid = by()
    if pid == 0:
        status = 1
        try:
            if _own:
                signal.set_wakeup_fd(-1)
                linux.reset_signal(signal.SIGCHLD)
                for fd in _own:
                    os.close(fd)
                _own.clear()
            child()
            status = 0
        finally:
            end(status)
    return pid


def sweep() -> None:
    """Kills and reaps every descendant: children of a killed child become this process's, until
    none is left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        # The first process of a name space may end all others: they are its own.
        for pid in [-1] if os.getpid() == 1 else linux.children():
            linux.kill(pid)
        os.waitpid(-1, 0)
