"""Forbidden acts of a program under test: each act really tried, in a fenced child.

- An act that returns has succeeded; one that raises was refused.
- An act harms nothing where it succeeds: signal 0, files of its own made and removed, system calls
  with arguments that no kernel takes.
- These few tell whether each layer holds here; all that a layer refuses is tried in the tests.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from guerdon.rewards.code.zygote.fence import FenceSpec

__all__ = ["ACTS", "Act", "Missing", "Targets"]

_ROOM: Final = 64 << 20  # what an allocation may exceed a limit by before that counts
_IO_URING_SETUP: Final = 425  # on each machine
_NEW_USER: Final = 0x10000000

_libc: Any = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    """There is nothing here that the act could be tried on."""


@dataclass(frozen=True)
class Targets:
    """Targets of the acts; all of it is the probe's own.

    Attributes:
        outer: A process of this user that is not part of the fences, as the trainer.
        zygote: The process that forked the child.
        sibling: Another fenced child.
        folder: A folder that anyone may write to, with a file ``canary`` in it that anyone may.
        tcp: A port of this machine where something listens.
        inherited: A descriptor that the zygote has open and no child is given.
        own: The child's own folder, if it has one.
        spec: What it may do.
    """

    outer: int
    zygote: int
    sibling: int
    folder: str
    tcp: int
    inherited: int
    own: str | None
    spec: FenceSpec


@dataclass(frozen=True)
class Act:
    """A forbidden act.

    Attributes:
        name: What a program does, as the end of "a program can …".
        layers: What refuses it, the surest first.
        attempt: Raises where it is refused.
    """

    name: str
    layers: tuple[str, ...]
    attempt: Callable[[Targets], Any]


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def _make(folder: str) -> None:
    path = os.path.join(folder, f"guerdon-probe-{os.getpid()}-{os.urandom(6).hex()}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)


def _other(pid: int) -> int:
    """Numbers are counted anew in a name space: there it may be this process itself."""
    if pid == os.getpid():
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return pid


def _start_a_process(targets: Targets) -> None:
    if targets.spec.processes:
        raise Missing("allowed")
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _connect(targets: Targets) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(("127.0.0.1", targets.tcp))


def _checked(value: int) -> None:
    """Raises for what a C function returned, where that is an error."""
    if value == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _use_io_uring(_: Targets) -> None:
    """Makes the call with arguments that no kernel takes: an error about them shows that it is
    allowed."""
    try:
        _checked(_libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_long(1), None))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def _has_capabilities(_: Targets) -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
    buffer = ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, buffer))
    effective, permitted, _inherited, effective_high, permitted_high, _ = struct.unpack("=6I", buffer.raw)
    if not (effective | permitted | effective_high | permitted_high):
        raise PermissionError(errno.EPERM, "none")


def _have_memory(targets: Targets) -> None:
    """Asked for, never touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    size = targets.spec.memory_limit + _ROOM
    mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()


def _many_threads(targets: Targets) -> None:
    """More than twice as many as are allowed: the limit may count some of others."""
    end = threading.Event()
    threads: list[threading.Thread] = []
    threading.stack_size(64 << 10)
    try:
        for _ in range(2 * targets.spec.tasks + 64):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            threads.append(thread)
    finally:
        end.set()
        for thread in threads:
            thread.join()


def _raise_limits(_: Targets) -> None:
    for limit in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
        try:
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            continue
        return
    raise PermissionError(errno.EPERM, "none")


def _fill_folder(targets: Targets) -> None:
    if targets.own is None:
        raise Missing("no folder of its own")
    path = os.path.join(targets.own, "piece")
    names = [f"{path}-{number}" for number in range((targets.spec.writable_bytes >> 20) + 2)]
    made = []
    try:
        for name in names:
            with open(name, "wb", buffering=0) as file:
                made.append(name)
                if file.write(bytes(1 << 20)) < 1 << 20:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        for name in made:
            os.unlink(name)


_FILE: Final = ("landlock", "namespaces")
_OTHERS: Final = ("seccomp", "landlock", "pid", "user")

ACTS: tuple[Act, ...] = (
    Act("read a file of another user that anyone may read", _FILE, lambda t: _read(os.path.join(t.folder, "canary"))),
    Act("make a file in another's folder", _FILE, lambda t: _make(t.folder)),
    Act("read the trainer's environment", _FILE, lambda t: _read(f"/proc/{t.outer}/environ")),
    Act("spare itself when memory runs out", _FILE, lambda _: open("/proc/self/oom_score_adj", "r+b").close()),
    Act("signal the trainer", _OTHERS, lambda t: os.kill(t.outer, 0)),
    Act("signal another program", _OTHERS, lambda t: os.kill(_other(t.sibling), 0)),
    Act("use a descriptor that it was not given", (), lambda t: os.fstat(t.inherited)),
    Act("start a process", ("seccomp",), _start_a_process),
    Act("connect to a port of this machine", ("seccomp", "namespaces", "landlock"), _connect),
    Act("make a user name space", ("seccomp",), lambda _: _checked(_libc.unshare(_NEW_USER))),
    Act("use io_uring", ("seccomp",), _use_io_uring),
    Act("have capabilities", ("capabilities", "user"), _has_capabilities),
    Act("have more memory than its limit", ("limits",), _have_memory),
    Act("start more threads than its limit", ("limits", "user"), _many_threads),
    Act("raise a limit", ("limits", "capabilities", "user"), _raise_limits),
    Act("write more than its folder may hold", ("folder",), _fill_folder),
)
