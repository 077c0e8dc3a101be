"""Reward functions for the tests of the process lane: each text says what to do."""

import ctypes
import os
import signal
import time


def work(text):
    verb, _, rest = text.partition(" ")
    return VERBS[verb](rest)


def hang(_):
    while True:
        pass


def hang_deaf(_):
    """Swallows the timeout exception."""
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass


def hold_gil(_):
    """Computes in C, which never looks at signals."""
    return sum(range(10**13))


def wait(rest):
    seconds, _, value = rest.partition(" ")
    time.sleep(float(seconds))
    return float(value)


def null(_):
    return ctypes.string_at(0)


def _blocked():
    """Hears no signal at all."""
    signal.pthread_sigmask(signal.SIG_SETMASK, range(1, signal.NSIG))
    hold_gil(None)


def _without_descriptors():
    """Closes what only the stack needs, and opens a file of its own in its place."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        # the listing's own is gone
        if os.path.lexists(path) and "guerdon-stack" in os.readlink(path):
            mine = os.memfd_create("mine")
            os.dup2(mine, int(name))
            break
    hold_gil(None)


def _taken():
    """Gives the real-time signals their default action, which ends the process."""
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, signal.SIG_DFL)
    hold_gil(None)


VERBS = {
    "give": float,
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "parent": lambda _: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(60)),
    "exit": lambda rest: os._exit(int(rest)),
    "hang": hang,
    "deaf": hang_deaf,
    "gil": hold_gil,
    "unstopped": lambda _: _blocked(),
    "closed": lambda _: _without_descriptors(),
    "taken": lambda _: _taken(),
    "wait": wait,
    "null": null,
}


class BrokenSetup:
    """Never gets out of its setup."""

    def __init__(self, how):
        self.how = how

    def setup(self):
        if self.how == "fails":
            raise RuntimeError("no tokenizer here")
        if self.how == "hangs":
            time.sleep(600)
        os._exit(9)

    def score(self, text):
        return work(text)


fails = BrokenSetup("fails")
hangs = BrokenSetup("hangs")
dies = BrokenSetup("dies")
