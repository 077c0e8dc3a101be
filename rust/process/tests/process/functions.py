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


def late(rest):
    """Swallows the timeout exception and answers after all."""
    try:
        time.sleep(10)
    except BaseException:
        pass
    return float(rest)


def wait(rest):
    seconds, _, value = rest.partition(" ")
    time.sleep(float(seconds))
    return float(value)


def fail(rest):
    raise ValueError(rest)


def leave(rest):
    raise SystemExit(rest)


def interrupt(_):
    raise KeyboardInterrupt


def null(_):
    return ctypes.string_at(0)


def fork(rest):
    """A child that returns into the worker's loop."""
    os.fork()
    return float(rest)


def daemon(rest):
    """Leaves a daemonised process behind and tells its pid through a file."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(rest, "w") as file:
                file.write(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    return 1.0


def close_all(_):
    os.closerange(3, 4096)
    time.sleep(600)


def speak(rest):
    print(rest)
    return 1.0


def deeply(rest):
    return deeply(rest)


def once(path):
    """Dies at the first call."""
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(7)
    return 3.0


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


def _parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


VERBS = {
    "give": float,
    "none": lambda _: None,
    "text": lambda rest: rest,
    "nan": lambda _: float("nan"),
    "dict": lambda rest: {"score": float(rest), "note": "extra"},
    "pid": lambda _: float(os.getpid()),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "zygote": lambda _: os.kill(os.getppid(), signal.SIGKILL),
    "parent": lambda _: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(60)),
    "stem": lambda _: os.kill(_parent_of(os.getppid()), signal.SIGKILL),
    "exit": lambda rest: os._exit(int(rest)),
    "length": lambda rest: float(len(rest)),
    "code": lambda rest: float(ord(rest)),
    "fill": lambda _: float(len(bytearray(4 << 30))),
    "hang": hang,
    "deaf": hang_deaf,
    "late": late,
    "gil": hold_gil,
    "unstopped": lambda _: _blocked(),
    "closed": lambda _: _without_descriptors(),
    "taken": lambda _: _taken(),
    "wait": wait,
    "fail": fail,
    "leave": leave,
    "interrupt": interrupt,
    "null": null,
    "fork": fork,
    "daemon": daemon,
    "close": close_all,
    "speak": speak,
    "deeply": deeply,
    "once": once,
}


def group(texts):
    """One value a text, its rank in the group added."""
    return [None if text == "none" else work(text) + index / 10 for index, text in enumerate(texts)]


class Counting:
    """Knows how often it was set up, and tells when it is closed."""

    def __init__(self, how="well"):
        self.how = how
        self.setups = 0

    def setup(self):
        if self.how == "fails":
            raise RuntimeError("no tokenizer here")
        if self.how == "hangs":
            time.sleep(600)
        if self.how == "dies":
            os._exit(9)
        self.setups += 1

    def score(self, text):
        return self.setups + work(text)

    def finish_group(self, scores, texts):
        return [None if score is None else score * 100 + len(scores) for score in scores]

    def close(self):
        print("closed", self.setups, flush=True)


well = Counting()
fails = Counting("fails")
hangs = Counting("hangs")
dies = Counting("dies")
