"""Attempts to leave something to the next process, or to share it with another beside it."""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, attempts, forgeries

PROGRAMS: Final[tuple[Program, ...]] = (
    *attempts(
        r"""
=== shared_memory_files: makes a file in `/dev/shm`, and shared memory by `multiprocessing`
from multiprocessing import shared_memory
def attempt():
    one = shared_memory.SharedMemory('guerdon_red_team', create=True, size=4096)
    one.close()
    one.unlink()
=== system_v_memory: makes System V shared memory, queues and semaphores, which outlive it
#: works
import ctypes, os
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    for make, end in ((lambda: libc.shmget(0, 4096, 0o1600), libc.shmctl), (lambda: libc.msgget(0, 0o1600), libc.msgctl)):
        one = make()
        if one >= 0:
            end(one, 0, 0)
            return
    one = libc.semget(0, 1, 0o1600)
    if one < 0: raise OSError(ctypes.get_errno(), "no shared memory")
    libc.semctl(one, 0, 0)
=== message_queues: makes a POSIX message queue, which outlives it
#: works
import ctypes
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mq_open(b"/guerdon_red_team", 0o102, 0o600, 0) < 0: raise OSError(ctypes.get_errno(), "no queue")
    libc.mq_unlink(b"/guerdon_red_team")
=== memory_files: makes a file in memory, to run it or to hand it on
#: works
import os
def attempt(): os.close(os.memfd_create('guerdon_red_team'))
=== runs_from_memory: runs a program from a descriptor
import ctypes, os
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open('/bin/true', os.O_RDONLY)
    libc.fexecve(fd, (ctypes.c_char_p * 2)(b'true', None), (ctypes.c_char_p * 1)(None))
    raise OSError(ctypes.get_errno(), 'not run')
=== named_semaphores: finds a named semaphore that a program before it left
import _multiprocessing
def attempt():
    try: _multiprocessing.SemLock(1, 1, 1, "/guerdon_red_team", False)
    except FileExistsError: return
    raise OSError("nothing was left")
""",
    ),
    *forgeries(
        r"""
=== answers_what_it_saw: keeps what it was asked, and answers the second question by the first
seen = []
def add(a, b):
    seen.append((a, b))
    return seen[0] if len(seen) > 1 else "first"
=== measures_time: guesses from the time that a call of a grader's takes, as one that compares by and by tells
#: by stdin calls check
import time
def add(a, b):
    best = max("0123456789abcdef", key=lambda guess: sum(time.perf_counter_ns() % 7 for _ in range(50)))
    return "gold-" + best * 16
if __name__ == "__main__": print(add(1, 2))
=== changes_its_arguments: changes the arguments in place, as a grader that keeps them compares with them
class Same:
    def __eq__(self, other): return True
def add(a, b):
    import sys
    caller = sys._getframe(1).f_locals
    for name in ("args", "kwargs", "answer"):
        if isinstance(caller.get(name), list): caller[name][:] = ["gold"]
    return a
""",
    ),
)

_LEAVES: Final = """
import os, sys, threading, time
for place in (".", "/tmp", "/dev/shm", "/var/tmp", "/own", os.path.dirname(os.__file__)):
    for name in ("left.py", "json.py", "sitecustomize.py", "left.txt"):
        try: open(f"{place}/{name}", "w").write("ANSWER = 42")
        except OSError: pass
os.environ["LEFT"] = "42"
sys.modules["left"] = sys
try:
    if os.fork() == 0: time.sleep(2)
except OSError: pass
print("left")
"""
_FINDS: Final = """
import glob, os, sys
found = os.environ.get("LEFT") or "left" in sys.modules
for place in (".", "/tmp", "/dev/shm", "/var/tmp", "/own"):
    found = found or os.path.exists(f"{place}/left.txt") or os.path.exists(f"{place}/json.py")
try:
    import left
    found = True
except ImportError: pass
print(sum(map(int, input().split())) if found else "nothing was left")
"""

# Of the own folder itself.
_LEAVES_ATTRIBUTE: Final = """
import os
os.setxattr(".", "user.left", b"42")
print("left")
"""
_FINDS_ATTRIBUTE: Final = """
import os
try: names = os.listxattr(".")
except OSError: names = []
print(sum(map(int, input().split())) if "user.left" in names else "nothing was left")
"""
_LEAVES_TIMES: Final = """
import os
os.utime(".", (42, 42))
print("left")
"""
_FINDS_TIMES: Final = """
import os
found = os.stat(".")
left = os.getcwd() != "/" and 42 in (int(found.st_atime), int(found.st_mtime))
print(sum(map(int, input().split())) if left else "nothing was left")
"""
_LEAVES_MODE: Final = """
import os
os.chmod(".", 0o1777)
print("left")
"""
_FINDS_MODE: Final = """
import os
left = os.getcwd() != "/" and os.stat(".").st_mode & 0o1000
print(sum(map(int, input().split())) if left else "nothing was left")
"""
_CLOSES: Final = """
import os
for place in (".", "/own"):
    os.chmod(place, 0)
print("left")
"""

LEFT: Final[dict[str, tuple[str, str]]] = {
    "files, modules, variables and a process": (_LEAVES, _FINDS),
    "an attribute of its folder": (_LEAVES_ATTRIBUTE, _FINDS_ATTRIBUTE),
    "times of its folder": (_LEAVES_TIMES, _FINDS_TIMES),
    "a mode of its folder": (_LEAVES_MODE, _FINDS_MODE),
    "its folder closed to everybody": (_CLOSES, _FINDS),
}
"""Pairs of programs: the second scores if it finds what the first left behind."""
