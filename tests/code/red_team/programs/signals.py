"""Signals of its own: ignored, blocked, timed, so that nothing ends it or the wrong thing ends."""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, forgeries

PROGRAMS: Final[tuple[Program, ...]] = forgeries(
    r"""
=== ignores_signals: ignores and blocks all signals that it can, and loops
#: hangs
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
=== catches_the_end: turns the signals that end it into exits with 0, and loops
#: hangs
import os, signal
for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *args: (print("PASSED", flush=True), os._exit(0)))
while True: pass
=== cancels_alarms: cancels the timers of a grader in its process, and waits
#: by calls; hangs
import signal, time
def add(a, b):
    signal.alarm(0)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF): signal.setitimer(timer, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)
=== timed_exit: has a timer end the process with 0 while the grader is at work
#: by stdin calls check; beats exit code
import os, signal
signal.signal(signal.SIGALRM, lambda *args: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def add(a, b):
    while True: pass
if __name__ == "__main__": add(1, 2)
=== urgent_signals: raises from a handler of SIGURG and SIGCHLD, wherever the process is
#: by stdin calls check; beats exit code
import os, signal
def raises(*args): raise SystemExit(0)
for number in (signal.SIGURG, signal.SIGCHLD, signal.SIGUSR1): signal.signal(number, raises)
def add(a, b):
    os.kill(os.getpid(), signal.SIGURG)
    return 0
if __name__ == "__main__": add(1, 2)
=== refuses_to_end: catches every exception, also those of its end, and goes on
#: hangs
import time
def add(a, b):
    while True:
        try:
            while True: time.sleep(0.01)
        except BaseException: pass
if __name__ == "__main__":
    try: add(1, 2)
    finally: add(1, 2)
=== waits_at_exit: ends, and waits in an `atexit` function and a thread that is no daemon
#: hangs
import atexit, threading, time
atexit.register(time.sleep, 60)
threading.Thread(target=time.sleep, args=(60,)).start()
print(0)
""",
    styles=("stdin",),
)
