"""One forbidden act, what it is tried on, and system calls by their names."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Act", "Missing", "Targets", "libc", "reached", "syscall"]


class Missing(Exception):
    """There is nothing here that the act could be tried on."""


@dataclass(frozen=True)
class Targets:
    """What acts are tried on; all of it is the probe's own.

    Attributes:
        outer: A process of this user that is no part of the fences, as the trainer.
        zygote: The process that forked the child.
        sibling: Another fenced child.
        folder: A folder that anyone may write to, with a file ``canary`` in it that anyone may.
        home: The home folder of this user.
        in_home: Something in it that no program needs, or None.
        tcp: A port of this machine where something listens.
        abstract: The name of an abstract Unix socket where something listens.
        shared: A file in ``/dev/shm``, or None.
        address: Eight bytes of `outer`'s memory.
        inherited: A descriptor that the zygote has open and no child is given.
        own: The child's own folder, if it has one.
        library: A file of the interpreter's library.
        memory_limit: The limits of the spec, as are the next ones.
    """

    outer: int
    zygote: int
    sibling: int
    folder: str
    home: str
    in_home: str | None
    tcp: int
    abstract: str
    shared: str | None
    address: int
    inherited: int
    own: str | None
    library: str
    memory_limit: int
    file_size: int
    writable_bytes: int
    writable_files: int
    open_files: int
    tasks: int
    processes: bool
    execute: bool


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


# Those without a function in every C library; the first of a pair is x86-64's, the other of the
# machines that came later.
_NUMBERS: Final = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "capget": (125, 90),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fanotify_init": (300, 262),
    "inotify_init1": (294, 26),
    "io_destroy": (207, 1),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "open_tree": (428, 428),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "seccomp": (317, 277),
    "tgkill": (234, 131),
    "userfaultfd": (323, 282),
}
_COLUMN: Final = 0 if platform.machine() == "x86_64" else 1

libc: Any = ctypes.CDLL(None, use_errno=True)


def syscall(name: str, *arguments: Any) -> int:
    """What the call returns.

    Raises:
        OSError: It failed.
    """
    wide = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return checked(libc.syscall(ctypes.c_long(_NUMBERS[name][_COLUMN]), *wide))


def checked(value: int) -> int:
    """What a C function returned, unless that is an error."""
    if value == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return value


def reached(name: str, *arguments: Any) -> None:
    """A call with arguments that no kernel takes: a complaint about these means that it may be
    called."""
    try:
        syscall(name, *arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
