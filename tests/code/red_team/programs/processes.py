"""Processes: signals to others, forks, daemons, traces, priorities.

Signals here are those that a process ignores by default, or 0: should a fence fail, nobody ends.
"""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, attempts

_OTHERS: Final = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def others():
    return [pid for pid in (os.getppid(), 1, *range(2, 300)) if pid not in (0, os.getpid())]
def done(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def one_of(act):
    last = ProcessLookupError(3, "nobody there")
    for pid in others():
        try: return act(pid)
        except OSError as error: last = error
    raise last
"""

PROGRAMS: Final[tuple[Program, ...]] = (
    *attempts(
        r"""
=== signals_its_parent: sends its parent a signal
#: works
def attempt():
    if os.getppid() == 0: raise ProcessLookupError(3, 'no parent')
    os.kill(os.getppid(), signal.SIGWINCH)
=== signals_everybody: sends a signal to all processes that it may, by `kill(-1)`, and to each by its number
#: works
def attempt():
    try: os.kill(-1, 0)
    except OSError: one_of(lambda pid: os.kill(pid, signal.SIGWINCH))
=== signals_groups: sends signals to the groups and sessions of others
#: works
def attempt(): one_of(lambda pid: os.killpg(pid, signal.SIGWINCH))
=== signals_threads: sends signals by `tgkill`, `tkill` and `rt_sigqueueinfo`
#: works; on x86_64
def attempt():
    def send(pid):
        if libc.syscall(234, pid, pid, 28) < 0: done(libc.syscall(200, pid, 28))
    one_of(send)
=== signals_by_descriptor: opens processes as descriptors, and signals, watches and robs them through these
#: works
def attempt(): one_of(lambda pid: done(libc.syscall(434, pid, 0)))
=== signals_by_owner: makes another process the owner of a pipe's signals
#: works
import fcntl
def attempt():
    fd, _ = os.pipe()
    one_of(lambda pid: fcntl.fcntl(fd, fcntl.F_SETOWN, pid))
=== traces_others: attaches to its parent and others by `ptrace`
def attempt(): one_of(lambda pid: done(libc.ptrace(0x4206, pid, 0, 0)) or libc.ptrace(17, pid, 0, 0))
=== traced_by_its_parent: asks to be traced, so that its end is reported as a stop
#: works
def attempt(): done(libc.ptrace(0, 0, 0, 0))
=== reads_memory_of_others: reads the memory of others by `process_vm_readv`
def attempt():
    into = ctypes.create_string_buffer(8)
    span = (ctypes.c_size_t * 2)(ctypes.addressof(into), 8)
    def read(pid): return done(libc.process_vm_readv(pid, span, 1, span, 1, 0))
    try: one_of(read)
    except OSError as error:
        # At an address that it lacks, "bad address" says that it was let in.
        if error.errno != 14: raise
=== limits_others: lowers limits, cores and priorities of others
#: works
import resource
def attempt():
    try: one_of(lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE))
    except OSError: one_of(lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)))
=== runs_sooner: raises its own priority above the trainer's
def attempt():
    try: os.setpriority(os.PRIO_PROCESS, 0, -5)
    except OSError: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
""",
        before=_OTHERS,
    ),
    *attempts(
        r"""
=== forks: forks
#: works
import os
def attempt():
    if os.fork() == 0: os._exit(0)
=== fork_bomb: forks as often as it may, and so does each of its children
import os, time
def attempt():
    forked = 0
    for _ in range(200):
        try:
            if os.fork() == 0:
                time.sleep(1)
                os._exit(0)
            forked += 1
        except OSError as error: last = error
    if forked == 0: raise last
=== forks_by_other_calls: makes processes by `vfork`, `clone` and `clone3`
#: works; on x86_64
import ctypes, os
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)
    for call in (lambda: libc.syscall(56, 17, 0, 0, 0, 0), lambda: libc.syscall(435, arguments, 88), lambda: libc.syscall(57)):
        pid = call()
        if pid == 0: os._exit(0)
        if pid > 0: return
    raise OSError(ctypes.get_errno(), "no process")
=== starts_programs: starts a program by `subprocess`, `posix_spawn`, `os.system` and `multiprocessing`
#: works
import os, subprocess
def attempt():
    try: subprocess.run(["/bin/true"], check=True)
    except OSError as error: last = error
    else: return
    if os.system("true") == 0: return
    try: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    except OSError: raise last
=== grandchild: starts a grandchild in a session of its own, which holds none of its descriptors, and ends
#: works
import os, time
def attempt():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            time.sleep(5)
        os._exit(0)
=== leaves_its_session: leaves the session and the group by which it is killed
#: works
import os
def attempt():
    try: os.setsid()
    except OSError: os.setpgid(0, 0 if os.getpid() != os.getpgrp() else os.getppid() or 1)
=== outlives_its_parent: undoes what ends it with its parent, and adopts orphans
#: works
import ctypes, os
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    for option in (1, 36):
        if libc.prctl(option, 1 if option == 36 else 0, 0, 0, 0) == 0: return
    raise OSError(ctypes.get_errno(), "prctl")
=== dumps_its_memory: makes itself readable for others, and moves its own memory map
#: works
import ctypes
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((4, 1), (0x59616D61, -1), (35, 1)):
        if libc.prctl(option, ctypes.c_long(value), 0, 0, 0) == 0: return
    raise OSError(ctypes.get_errno(), "prctl")
""",
    ),
)
