"""Meeting place of a host's ranks: a socket in a folder that only this user can enter, one for each
launch and list of functions.

- A lock decides who starts the engine; the kernel frees it when its holder dies.
- The holder of the lock may remove files of killed processes: a socket that nobody serves, and then
  the lock's own file. A lock on a file that was removed does not count: it is taken again.
- A lock that nobody gives back within `LOCK_TIMEOUT_S` is not waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from guerdon import __version__
from guerdon._system import launcher
from guerdon._system.socket_folders import NoFolderError, is_served, socket_path

__all__ = ["LOCK_TIMEOUT_S", "START_TIMEOUT_S", "JoinError", "Meeting", "meeting_of"]

START_TIMEOUT_S: Final = 60.0
# The starting process has the lock all that time, and greets the engine before and after.
LOCK_TIMEOUT_S: Final = START_TIMEOUT_S + 15.0
_RETRY_S: Final = 0.005
_NAME: Final = re.compile(r"engine-[0-9a-f]{12}-[0-9a-f]{12}\.lock")


class JoinError(Exception):
    """This process can't share an engine; the message is the reason, to follow "can't share an
    engine: "."""


class Meeting(NamedTuple):
    """The files by which the processes of one launch with the same functions find each other."""

    socket: Path
    lock: Path

    @contextlib.contextmanager
    def locked(self, timeout: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Holds the lock: nobody else starts, joins or ends the engine meanwhile.

        Raises:
            JoinError: Somebody holds it for longer than `timeout` seconds, or it can't be made.
        """
        try:
            descriptor = _lock(self.lock, time.monotonic() + timeout)
        except OSError as error:
            raise JoinError(f"the lock {os.fspath(self.lock)!r} can't be used ({error})") from error
        if descriptor is None:
            raise JoinError(f"another process holds the lock {os.fspath(self.lock)!r} for more than {timeout:g} s")
        try:
            yield
        finally:
            # A child that was forked meanwhile has the lock too: closing alone would leave it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def others(self) -> list[Path]:
        """Sockets that serve functions of the same names in this launch, which are not the same."""
        family, _, _ = self.socket.name.rpartition("-")
        found = self.socket.parent.glob(f"{family}-*.sock")
        return [path for path in sorted(found) if path != self.socket and is_served(path)]

    def remove(self) -> None:
        """Removes the socket and the lock file. Only the holder of the lock may, once nobody serves
        the socket."""
        self.socket.unlink(missing_ok=True)
        self.lock.unlink(missing_ok=True)

    def remove_if_stale(self) -> bool:
        """Removes both files if nobody serves the socket and nobody is about to."""
        with contextlib.suppress(OSError):
            descriptor = _lock(self.lock, deadline=None, make=False)
            if descriptor is not None:
                try:
                    if not is_served(self.socket):
                        self.remove()
                        return True
                finally:
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                    os.close(descriptor)
        return False


def meeting_of(digest: bytes, names: Sequence[str], environ: Mapping[str, str] = os.environ) -> Meeting:
    """Returns the meeting place of this process and others of its launch with the same functions
    and options.

    Args:
        digest: Of the functions and options.
        names: The functions'.

    Raises:
        JoinError: No folder is suitable.
    """
    family = _short_hash([*_launch(environ), *(name.encode() for name in names)])
    try:
        path = socket_path(f"engine-{family}-{_short_hash([digest])}.sock", remove_stale, environ)
    except NoFolderError as error:
        raise JoinError(str(error)) from error
    return Meeting(path, path.with_suffix(".lock"))


def remove_stale(folder: Path) -> None:
    """Removes files of engines that are gone."""
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name):
            Meeting(path.with_suffix(".sock"), path).remove_if_stale()


def _launch(environ: Mapping[str, str]) -> list[bytes]:
    """Returns the facts that all ranks that may share an engine have in common, beside their
    functions."""
    return [
        __version__.encode(),
        launcher.launch_on_host(environ).encode(),
        str(os.geteuid()).encode(),
        # Containers that share a folder can't signal each other's processes.
        _namespace().encode(),
    ]


def _short_hash(parts: Iterable[bytes]) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=6).hexdigest()


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _lock(path: Path, deadline: float | None, *, make: bool = True) -> int | None:
    """A descriptor that holds the lock; None if somebody else has it until `deadline`, or now."""
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            taken = _try_to_lock(descriptor)
            if taken and _is_at(descriptor, path):
                kept, descriptor = descriptor, -1
                return kept
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if not taken:
            if deadline is None or time.monotonic() >= deadline:
                return None
            time.sleep(_RETRY_S)


def _try_to_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Returns whether the file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
