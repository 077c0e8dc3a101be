"""Signals of its own: ignored, blocked, timed, so that nothing ends it or the wrong thing ends."""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, Style, forgery

_SCRIPT: Final[tuple[Style, ...]] = ("stdin",)

PROGRAMS: Final[tuple[Program, ...]] = (
    forgery(
        "ignores_signals",
        "ignores and blocks all signals that it can, and loops",
        """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
""",
        styles=_SCRIPT,
        hangs=True,
    ),
    forgery(
        "catches_the_end",
        "turns the signals that end it into exits with 0, and loops",
        """
import os, signal
for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *args: (print("PASSED", flush=True), os._exit(0)))
while True: pass
""",
        styles=_SCRIPT,
        hangs=True,
    ),
    forgery(
        "cancels_alarms",
        "cancels the timers of a grader in its process, and waits",
        """
import signal, time
def add(a, b):
    signal.alarm(0)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF): signal.setitimer(timer, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)
""",
        styles=("calls",),
        hangs=True,
    ),
    forgery(
        "timed_exit",
        "has a timer end the process with 0 while the grader is at work",
        """
import os, signal
signal.signal(signal.SIGALRM, lambda *args: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def add(a, b):
    while True: pass
if __name__ == "__main__": add(1, 2)
""",
        styles=("stdin", "calls", "check"),
        beats=("exit code",),
    ),
    forgery(
        "urgent_signals",
        "raises from a handler of SIGURG and SIGCHLD, wherever the process is",
        """
import os, signal
def raises(*args): raise SystemExit(0)
for number in (signal.SIGURG, signal.SIGCHLD, signal.SIGUSR1): signal.signal(number, raises)
def add(a, b):
    os.kill(os.getpid(), signal.SIGURG)
    return 0
if __name__ == "__main__": add(1, 2)
""",
        styles=("stdin", "calls", "check"),
        beats=("exit code",),
    ),
    forgery(
        "refuses_to_end",
        "catches every exception, also those of its end, and goes on",
        """
import time
def add(a, b):
    while True:
        try:
            while True: time.sleep(0.01)
        except BaseException: pass
if __name__ == "__main__":
    try: add(1, 2)
    finally: add(1, 2)
""",
        styles=_SCRIPT,
        hangs=True,
    ),
    forgery(
        "waits_at_exit",
        "ends, and waits in an `atexit` function and a thread that is no daemon",
        """
import atexit, threading, time
atexit.register(time.sleep, 60)
threading.Thread(target=time.sleep, args=(60,)).start()
print(0)
""",
        styles=_SCRIPT,
        hangs=True,
    ),
)
