"""Acts on other processes, and ways to leave one's own place among them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
from collections.abc import Callable

from guerdon.rewards.code.zygote.acts import _other, _read
from tests.code.acts.act import Act, Missing, Targets, checked, libc, syscall

__all__ = ["PROCESSES"]

_SIGNALS = ("seccomp", "landlock", "pid", "user")
_MEMORY = ("seccomp", "landlock", "pid", "user")
_PROC = ("landlock", "namespaces")


def _list_processes(_: Targets) -> None:
    if not any(name.isdigit() for name in os.listdir("/proc")):
        raise FileNotFoundError("no processes in /proc")


def _signal_all(_: Targets) -> None:
    os.kill(-1, 0)
    # As the first process of a name space it may, and reaches nobody.
    if os.getpid() == 1:
        raise ProcessLookupError


def _signal_group(targets: Targets) -> None:
    group = os.getpgid(targets.outer)
    if group == 0:  # to the system call that would be the program's own group
        raise Missing("the trainer's group is outside of this name space of processes")
    os.killpg(group, 0)


def _queue(targets: Targets) -> None:
    syscall("tgkill", targets.outer, targets.outer, 0)


def _signal_by_descriptor(targets: Targets) -> None:
    fd = syscall("pidfd_open", targets.outer, 0)
    syscall("pidfd_send_signal", fd, 0, 0, 0)


def _attach(pid: int) -> None:
    seize = 0x4206  # without stopping it; ends with this process
    checked(libc.ptrace(seize, _other(pid), 0, 0))


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _read_memory(targets: Targets) -> None:
    buffer = ctypes.create_string_buffer(8)
    here = _Range(ctypes.addressof(buffer), 8)
    there = _Range(targets.address, 8)
    checked(libc.process_vm_readv(targets.outer, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def _leave_session(targets: Targets) -> None:
    """A child of the program leads no group, so it could."""
    if not targets.spec.processes:
        raise Missing("no processes of its own")
    _in_a_child(os.setsid)


def _leave_group(targets: Targets) -> None:
    if not targets.spec.processes:
        raise Missing("no processes of its own")
    _in_a_child(lambda: os.setpgid(0, 0))


def _in_a_child(attempt: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    _, status = os.waitpid(pid, 0)
    number = os.waitstatus_to_exitcode(status)
    if number:
        raise OSError(number, os.strerror(number))


def _start_beside_itself(targets: Targets) -> None:
    if not targets.spec.processes:
        raise Missing("no processes of its own")
    pid = syscall("clone", 0x8000 | int(signal.SIGCHLD), 0, 0, 0, 0)  # CLONE_PARENT
    if pid == 0:
        os._exit(0)


def _send_input_signals(targets: Targets) -> None:
    theirs, ours = os.pipe()
    try:
        fcntl.fcntl(theirs, fcntl.F_SETOWN, targets.outer)
    finally:
        os.close(theirs)
        os.close(ours)


def _set_cores(targets: Targets) -> None:
    os.sched_setaffinity(targets.outer, os.sched_getaffinity(targets.outer))


def _execute(targets: Targets) -> None:
    if targets.spec.execute:
        raise Missing("allowed")
    # A path that is none: the kernel complains about it only if the call is allowed.
    if libc.execve(None, None, None) == -1 and ctypes.get_errno() != errno.EFAULT:
        checked(-1)


PROCESSES = (
    Act("signal its parent", _SIGNALS, lambda t: os.kill(_other(t.zygote), 0)),
    Act("signal all processes", _SIGNALS, _signal_all),
    Act("signal the trainer's group", _SIGNALS, _signal_group),
    Act("signal a thread of the trainer", _SIGNALS, _queue),
    Act("signal the trainer by a descriptor", _SIGNALS, _signal_by_descriptor),
    Act("have the trainer signalled by a pipe", _SIGNALS, _send_input_signals),
    Act("trace the trainer", _MEMORY, lambda t: _attach(t.outer)),
    Act("trace its parent", _MEMORY, lambda t: _attach(t.zygote)),
    Act("trace another program", _MEMORY, lambda t: _attach(t.sibling)),
    Act("read the trainer's memory", _MEMORY, _read_memory),
    Act("read the trainer's limits", _MEMORY, lambda t: resource.prlimit(t.outer, resource.RLIMIT_NOFILE)),
    Act("compare the trainer's descriptors", _MEMORY, lambda t: syscall("kcmp", t.outer, t.outer, 0, 0, 0)),
    Act("choose the trainer's cores", ("seccomp", "pid", "user"), _set_cores),
    Act("choose its own cores", ("seccomp",), lambda _: os.sched_setaffinity(0, os.sched_getaffinity(0))),
    Act("open the trainer's memory", _PROC, lambda t: _read(f"/proc/{t.outer}/mem")),
    Act("read the trainer's command line", _PROC, lambda t: _read(f"/proc/{t.outer}/cmdline")),
    Act("list the trainer's descriptors", _PROC, lambda t: os.listdir(f"/proc/{t.outer}/fd")),
    Act("read its parent's environment", _PROC, lambda t: _read(f"/proc/{t.zygote}/environ")),
    Act("open another program's memory", _PROC, lambda t: _read(f"/proc/{t.sibling}/mem")),
    Act("list all processes", _PROC, _list_processes),
    Act("keep the trainer from being spared", _PROC, lambda t: open(f"/proc/{t.outer}/oom_score_adj", "r+b").close()),
    Act("become another program", ("seccomp",), _execute),
    Act("leave its session", ("seccomp", "pid"), _leave_session),
    Act("leave its process group", ("seccomp", "pid"), _leave_group),
    Act("start a process as its parent's child", ("seccomp", "pid"), _start_beside_itself),
)
