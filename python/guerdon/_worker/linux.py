"""Linux calls that Python's standard library lacks."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import fcntl
import os
import resource
import signal
import sys
from functools import cache
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Linux has not enforced this limit since 2.4; each process inherits it, through exec too.
_RLIMIT_LOCKS = 10
# Least oom_score_adj, a thousandth of the memory each. If workers had less than 1000, a trainer
# that holds most of the memory would still be chosen before them.
WORKER_OOM = 1000
LOADER_OOM = 500
# Added to the trainer's nice level: its own threads, which feed the GPUs, come first.
_WORKER_NICE = 3
_HIGH = 512  # beyond what functions usually have open


def adopt_orphans() -> None:
    """Makes this process the subreaper: orphaned descendants, daemons too, become its children."""
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:  # an emulator such as qemu-user lacks it
        print(
            f"PR_SET_CHILD_SUBREAPER: {error.strerror}. Processes that reward functions leave behind may outlive the engine.",
            file=sys.stderr,
            flush=True,
        )


def mark_descendants(mark: int) -> None:
    """Marks this process and all that it starts from now on, in whatever session."""
    _, hard = resource.getrlimit(_RLIMIT_LOCKS)
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (mark, hard))
    except (ValueError, OSError):  # limited to less: what it leaves behind ends with the zygote
        return


def mark_of(pid: int) -> int:
    """The mark of a process, 0 without one."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            for line in file:
                if line.startswith(b"Max file locks"):
                    return int(line.split()[3])
    except (OSError, ValueError):  # it is gone, or is not marked: unlimited
        pass
    return 0


def prefer_to_die(score: int) -> None:
    """Makes the kernel choose this process before the trainer when memory is used up."""
    try:
        with open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
            own = int(file.read())
            if own < score:
                file.seek(0)
                file.write(b"%d" % score)
    except (OSError, ValueError):  # no such file: not on this kernel, or /proc is read-only
        return


def yield_to_trainer() -> None:
    """Gives the trainer's threads the larger share of a core that both need."""
    os.nice(_WORKER_NICE)


def no_core_dumps() -> None:
    """Prevents crashed workers from writing core files, each as large as the worker."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def exit_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Makes this process end by a signal when its parent ends, or at once if it has ended.

    The kernel sends the signal at the end of the forking *thread*, which must therefore be the only
    one, or wait for this process.
    """
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)


def reset_signals() -> None:
    """Unblocks all signals, and resets all except those that Python itself ignores: a started
    process inherits ignored and blocked signals from its parent."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def reset_signal(number: int) -> None:
    """Gives a signal its default action. `signal.signal` also names the earlier handler; it catches
    an exception for one without a name: that writes to fifty pages of each fork."""
    _signal.signal(number, _signal.SIG_DFL)


def to_high_descriptor(fd: int) -> int:
    """Moves a descriptor to a high number, which user code that closes and opens files won't
    reuse."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # the limit on descriptors is lower
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return high


def children() -> list[int]:
    """Children of this process, with zombies."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == os.getpid()]


def has_ended(pid: int) -> bool:
    """Returns whether a child is a zombie; it stays one."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def is_gone(pid: int) -> bool:
    """Returns whether a process, of whatever parent, is a zombie or not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except OSError:
        return True


def reap(pid: int) -> int:
    """The wait status of a child that ended; -1 if it is not a child or still runs."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except (ChildProcessError, OverflowError):
        return -1
    return status if found else -1


def kill(pid: int) -> None:
    """Kills a child of this process, and the process group that the child leads."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except OSError:  # no such group, or gone
            continue


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


@cache
def _libc() -> Any:
    """The C library; loaded once, in the zygote: loading it writes to a hundred pages, in each
    fork."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def flush_c_stdout() -> None:
    """Flushes what C code printed."""
    _libc().fflush(_c_stdout())


@cache
def _c_stdout() -> Any:
    """C's variable ``stdout``; looked up once, because that takes longer than a flush."""
    import ctypes

    return ctypes.c_void_p.in_dll(_libc(), "stdout")


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = _libc()
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
