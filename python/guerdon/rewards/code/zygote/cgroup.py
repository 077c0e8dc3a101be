"""`ProgramGroup`: the cgroup (version 2) of a zygote's programs, where this user may make one.

- It bounds the memory and the tasks of all processes of a program together, and ends them at once.
- Nothing of the machine's own groups is changed: a group is made beside this process' own, or
  below it, where the controllers are there already, and removed at the end. One that was left, as
  its zygote was killed, is removed by the next.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import Final

from guerdon.rewards.code.zygote.unfenced_folder import lock_folder, remove_left

__all__ = ["NoGroupError", "ProgramGroup"]

_ROOT: Final = "/sys/fs/cgroup"
_NEEDED: Final = frozenset({"memory", "pids"})
_NAME: Final = "guerdon-programs-"
# The group's own kill is newer than the rest of it.
_FILES: Final = ("cgroup.procs", "cgroup.kill", "memory.max")
# Time for killed processes to end; a group that is not empty then is removed by the next zygote.
_END_S: Final = 1.0
# Another zygote may take a group that is only half made for one that was left.
_TRIES: Final = 5


class NoGroupError(Exception):
    """No group can be made here, for this reason."""


class ProgramGroup:
    """A group for one program after the other; `make` makes it.

    Held by descriptors: behind the fences its files have no names.
    """

    def __init__(self, parent: int, name: str, held: int, files: tuple[int, ...]) -> None:
        self._parent = parent
        self._name = name
        self._held = held  # locked while the group is in use
        self._join, self._kill, self._memory = files

    @classmethod
    def make(cls, tasks: int) -> ProgramGroup:
        """Make it, for so many tasks together; a `NoGroupError` says why it can't be."""
        own = _own().strip("/")
        here = os.path.join(_ROOT, own)
        places = (os.path.dirname(here), here) if own else (here,)
        refused = _why_none(places)
        for parent in places:
            if not _has(parent, "cgroup.subtree_control"):
                continue
            for _ in range(_TRIES):
                try:
                    remove_left(parent, _NAME, _remove)
                    return cls._made(parent, tasks)
                except OSError as error:
                    refused = str(error)
        raise NoGroupError(refused)

    @classmethod
    def _made(cls, parent: str, tasks: int) -> ProgramGroup:
        name = f"{_NAME}{os.getpid()}-{os.urandom(4).hex()}"
        path = os.path.join(parent, name)
        _make(path)
        fds: list[int] = []
        try:
            fds.append(lock_folder(path))
            for file, value in {"pids.max": tasks, "memory.oom.group": 1}.items():
                _write(os.path.join(path, file), value)
            with contextlib.suppress(OSError):  # on machines without swap
                _write(os.path.join(path, "memory.swap.max"), 0)
            fds += [os.open(os.path.join(path, file), os.O_WRONLY | os.O_CLOEXEC) for file in _FILES]
            fds.append(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError:
            for fd in fds:
                os.close(fd)
            _remove(path)
            raise
        held, *files, folder = fds
        return cls(folder, name, held, tuple(files))

    def limit(self, memory: int) -> None:
        """Bound the memory of all processes together, the files of their folder with it."""
        os.write(self._memory, str(memory).encode())

    def join(self) -> None:
        """Have this process, and all that it starts, be in the group."""
        os.write(self._join, b"0")

    def kill(self) -> None:
        """End all that is in it."""
        os.write(self._kill, b"1")

    def close(self) -> None:
        """Remove it; what is in it is ended before."""
        with contextlib.suppress(OSError):
            self.kill()
        deadline = time.monotonic() + _END_S
        while not _remove(self._name, self._parent) and time.monotonic() < deadline:
            time.sleep(0.002)
        for fd in (self._join, self._kill, self._memory, self._held, self._parent):
            os.close(fd)


def _has(group: str, file: str) -> bool:
    """Returns whether this file of a group names the controllers that are needed."""
    return set(_read(os.path.join(group, file)).split()) >= _NEEDED


def _why_none(places: tuple[str, ...]) -> str:
    """Why no group with the controllers can be made in these, where none can."""
    found = [os.path.join(group, "cgroup.subtree_control") for group in places if _has(group, "cgroup.controllers")]
    if not found:
        return "no cgroup of version 2 with the controllers memory and pids"
    one = "one of them" if len(found) > 1 else "it"
    return f"controllers are not handed down by {' or '.join(found)}: {one} must name '+memory +pids'"


def _own() -> str:
    """The group of this process in the one tree of version 2; "" for its root."""
    for line in _read("/proc/self/cgroup").splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            return path
    return ""


def _make(path: str) -> None:
    os.mkdir(path)


def _remove(path: str, folder: int | None = None) -> bool:
    """False where something in it is still ending."""
    try:
        os.rmdir(path, dir_fd=folder)
    except OSError as error:
        return error.errno != errno.EBUSY
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _write(path: str, value: int) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(value))
