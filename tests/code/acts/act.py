"""Targets of forbidden acts besides the product's own, and system calls by their names."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from guerdon.rewards.code.zygote import acts
from guerdon.rewards.code.zygote.acts import Act, Missing

__all__ = ["Act", "Missing", "Targets", "libc", "more_targets", "own_folder", "reached", "syscall"]


@dataclass(frozen=True)
class Targets(acts.Targets):
    """The targets of acts; all of it is the probe's own.

    Attributes:
        home: The home folder of this user.
        in_home: Something in it that no program needs, or None.
        abstract: The name of an abstract Unix socket where something listens.
        shared: A file in ``/dev/shm``, or None.
        address: Eight bytes of `outer`'s memory.
        library: A file of the interpreter's library.
    """

    home: str
    in_home: str | None
    abstract: str
    shared: str | None
    address: int
    library: str


@contextlib.contextmanager
def more_targets(given: acts.Targets) -> Iterator[Targets]:
    """Those, open to everyone, too; in the folder of the given a file ``empty`` and a socket."""
    home = os.path.expanduser("~")
    secret = ctypes.create_string_buffer(b"canary!", 8)
    with contextlib.ExitStack() as stack:
        Path(given.folder, "empty").touch()
        abstract, path = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        name = f"guerdon-probe-{os.getpid()}-{os.urandom(8).hex()}"
        for server, address in ((abstract, f"\0{name}"), (path, f"{given.folder}/socket")):
            server.bind(address)
            server.listen()
        for opened in ("empty", "socket"):
            os.chmod(f"{given.folder}/{opened}", 0o777)
        shared = f"/dev/shm/{name}" if os.access("/dev/shm", os.W_OK) else None
        if shared is not None:
            Path(shared).write_text("x")
            stack.callback(os.unlink, shared)
            os.chmod(shared, 0o666)
        more = (home, _in_home(home), name, shared, ctypes.addressof(secret), os.__file__)
        yield Targets(*vars(given).values(), *more)


def own_folder(targets: Targets) -> str:
    """The program's own folder, where it has one."""
    if targets.own is None:
        raise Missing("no folder of its own")
    return targets.own


def _in_home(home: str) -> str | None:
    """A name that is not on the way to the interpreter."""
    try:
        names = sorted(os.listdir(home))
    except OSError:
        return None
    needed = [sys.prefix, sys.base_prefix, sys.executable, os.path.realpath(sys.executable)]
    return next((name for name in names if not any(path.startswith(os.path.join(home, name)) for path in needed)), None)


# Those without a function in every C library; the first of a pair is x86-64's, the other of the
# machines that came later.
_NUMBERS: Final = {
    "clone": (56, 220),
    "fanotify_init": (300, 262),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "listmount": (458, 458),
    "membarrier": (324, 283),
    "open_tree": (428, 428),
    "openat2": (437, 437),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "seccomp": (317, 277),
    "set_mempolicy": (238, 237),
    "splice": (275, 76),
    "tee": (276, 77),
    "tgkill": (234, 131),
    "vmsplice": (278, 75),
}
_COLUMN: Final = 0 if platform.machine() == "x86_64" else 1

libc: Any = acts._libc


def syscall(name: str, *arguments: Any) -> int:
    """Returns what the call returns.

    Raises:
        OSError: It failed.
    """
    wide = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return checked(libc.syscall(ctypes.c_long(_NUMBERS[name][_COLUMN]), *wide))


def checked(value: int) -> int:
    """Returns the value of a C function, unless that is an error."""
    acts._checked(value)
    return value


def reached(name: str, *arguments: Any) -> None:
    """A call with arguments that no kernel takes: a complaint about these means that it may be
    called."""
    try:
        syscall(name, *arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
