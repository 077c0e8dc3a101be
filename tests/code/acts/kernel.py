"""Acts on the machine and on large parts of its kernel.

Calls that seccomp alone refuses are in the red team, where a program makes the same one: no other
layer that is missing changes them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable

from tests.code.acts.act import Act, Targets, checked, libc, reached, syscall

__all__ = ["KERNEL"]

_NEWNS, _NEWPID, _NEWNET = 0x20000, 0x20000000, 0x40000000
_ADMIN = ("seccomp", "capabilities", "user")


def _mount(targets: Targets) -> None:
    where = (targets.own or targets.folder).encode()
    checked(libc.mount(b"none", where, b"tmpfs", ctypes.c_ulong(0), b"size=4k"))
    libc.umount2(where, 2)


def _large_pipe(_: Targets) -> None:
    theirs, ours = os.pipe()
    try:
        fcntl.fcntl(ours, 1031, 1 << 17)  # F_SETPIPE_SZ
    finally:
        os.close(theirs)
        os.close(ours)


def _push_input(_: Targets) -> None:
    """Into a pipe, which is no terminal: only that complaint is one of the call itself."""
    theirs, ours = os.pipe()
    try:
        fcntl.ioctl(theirs, termios.TIOCSTI, b"\n")
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise
    finally:
        os.close(theirs)
        os.close(ours)


def _become_root(_: Targets) -> None:
    if os.geteuid() == 0:
        os.setresuid(1, 1, 1)
    else:
        os.setuid(0)


def _join_groups(_: Targets) -> None:
    os.setgroups([os.getgid()])


def _host_name(_: Targets) -> None:
    name = os.uname().nodename.encode()
    checked(libc.sethostname(name, ctypes.c_size_t(len(name))))


def _run_sooner(_: Targets) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -5)
    except PermissionError:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _run_sooner_than_trainer(targets: Targets) -> None:
    os.setpriority(os.PRIO_PROCESS, targets.outer, os.getpriority(os.PRIO_PROCESS, targets.outer))


def _set_clock(_: Targets) -> None:
    """Sets the length of a tick to what it is."""
    state = ctypes.create_string_buffer(256)  # larger than any `struct timex`
    checked(libc.adjtimex(state))
    struct.pack_into("=I", state, 0, 0x4000)  # ADJ_TICK
    checked(libc.adjtimex(state))


def _log_of_the_kernel(_: Targets) -> None:
    checked(libc.klogctl(10, None, 0))


def _unshare(flag: int) -> Callable[[Targets], object]:
    return lambda _: checked(libc.unshare(flag))


def _join_namespace(targets: Targets) -> None:
    fd = os.open(f"/proc/{targets.outer}/ns/net", os.O_RDONLY)
    try:
        checked(libc.setns(fd, _NEWNET))
    finally:
        os.close(fd)


KERNEL = (
    Act("make a mount name space", _ADMIN, _unshare(_NEWNS)),
    Act("make a name space of processes", _ADMIN, _unshare(_NEWPID)),
    Act("make a network name space", _ADMIN, _unshare(_NEWNET)),
    Act("join the trainer's network", ("landlock", *_ADMIN), _join_namespace),
    Act("mount a file system", ("landlock", *_ADMIN), _mount),
    Act("copy a mount", _ADMIN, lambda _: os.close(syscall("open_tree", -100, b"/", 1))),
    Act("change its root folder", _ADMIN, lambda _: os.chroot("/")),
    Act("open a file by a call that hides its flags", ("seccomp",), lambda _: reached("openat2", -100, None, None, 0)),
    Act("list mounts", ("seccomp",), lambda _: reached("listmount", None, None, 0, 0)),
    Act("wait for all processors", ("seccomp",), lambda _: reached("membarrier", 1, 0, 0)),
    Act("choose where its memory is", ("seccomp",), lambda _: reached("set_mempolicy", 0, None, 0)),
    Act("move pages between pipes", ("seccomp",), lambda _: reached("splice", -1, None, -1, None, 1, 0)),
    Act("copy pages between pipes", ("seccomp",), lambda _: reached("tee", -1, -1, 1, 0)),
    Act("move pages into a pipe", ("seccomp",), lambda _: reached("vmsplice", -1, None, 0, 0)),
    Act("watch all files", _ADMIN, lambda _: os.close(syscall("fanotify_init", 0, 0))),
    Act("add a filter of calls", ("seccomp",), lambda _: reached("seccomp", 1, 0, None)),
    Act("take pages for a large pipe", ("seccomp",), _large_pipe),
    Act("type into a terminal", ("seccomp",), _push_input),
    Act("become another user", _ADMIN, _become_root),
    Act("join groups", _ADMIN, _join_groups),
    Act("change the name of the machine", _ADMIN, _host_name),
    Act("run before others", ("seccomp", "limits", "capabilities", "user"), _run_sooner),
    Act("change the trainer's priority", ("seccomp", "pid", "user"), _run_sooner_than_trainer),
    Act("change its input and output priority", ("seccomp",), lambda _: syscall("ioprio_set", 1, 0, 0x6000)),
    Act("set the clock", _ADMIN, _set_clock),
    Act("read the kernel's log", _ADMIN, _log_of_the_kernel),
)
