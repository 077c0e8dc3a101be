"""Acts that every program may do, done once in a fenced child: a fence that keeps an honest program
from its work would have each of them score 0.

`shortcomings` runs in the process that prepared the fences. The failing act is named, with the
remedy.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from guerdon.rewards.code.zygote.readable import places_of
from guerdon.rewards.code.zygote.tasks import SHORTAGE, starts_a_thread

if TYPE_CHECKING:
    from guerdon.rewards.code.zygote.fence import FenceSpec, Prepared

__all__ = ["shortcomings"]

# All of it takes milliseconds.
_END_S: Final = 20.0
# Of the library, small; two that are not loaded yet are imported.
_SELDOM: Final = ("sched", "csv", "difflib", "colorsys", "wave", "calendar")
_IMPORTED: Final = 2
# Of a module: all of them have the mode that it was installed with.
_FILES: Final = 1000
_BYTES: Final = b"guerdon" * 100


@dataclass(frozen=True)
class _Need:
    """Something that a program must be able to do, and what helps where it can't."""

    name: str
    advice: str
    do: Callable[[], object]


def shortcomings(prepared: Prepared, spec: FenceSpec) -> list[str]:
    """Returns the abilities that a program should have and lacks here, in words; none as a rule."""
    needs = _needs(prepared.folder, spec)
    theirs, ours = os.pipe()
    pid = prepared.fork()
    if pid == 0:
        try:
            prepared.enter((0, 1, 2, ours))
            for number, need in enumerate(needs):
                os.write(ours, f"{number}".encode())
                try:
                    need.do()
                except BaseException as error:
                    os.write(ours, f" {type(error).__name__}: {error}".replace("\0", " ").encode("utf-8", "replace"))
                else:
                    os.write(ours, b" ")
                os.write(ours, b"\0")
        finally:
            os._exit(0)
    os.close(ours)
    reported = _read(theirs)
    os.kill(pid, signal.SIGKILL)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    prepared.clear_folder()
    found: list[str] = []
    for number, need in enumerate(needs):
        one = reported[number] if number < len(reported) else ""
        fault = one.partition(" ")[2] if " " in one else f"its process ended with {ended}"
        if fault:
            found.append(f"{need.name} ({fault[:300]}): {need.advice}")
        if " " not in one:
            break  # the others were not tried
    return found


def _read(fd: int) -> list[str]:
    """Returns the lines until the end of the process."""
    data = b""
    with open(fd, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], _END_S)[0]:
            piece = pipe.read(1 << 16)
            if not piece:
                break
            data += piece
    return data.decode("utf-8", "replace").split("\0")


def _needs(folder: str | None, spec: FenceSpec) -> list[_Need]:
    library = os.path.dirname(os.__file__)
    needs = [_Need("import a module of the standard library", _opened(library), _import_one)]
    for name in spec.modules:
        places = places_of((name,))
        where = places[0] if places else library
        needs.append(_Need(f"read the files of modules={name!r}", _opened(where), partial(_open, places)))
    needs.append(_Need("start a thread", f"{SHORTAGE}.", lambda: _start_a_thread(spec.tasks)))
    if folder is not None:
        needs.append(_Need("write and read a file in its folder", "free memory on this machine.", _write_and_read))
    return needs


def _opened(place: str) -> str:
    return (
        f"the user that programs have may not read it. Let all users (chmod -R o+rX {place}), or run as the user "
        "that it belongs to, and not as root."
    )


def _import_one() -> None:
    names = [name for name in _SELDOM if name not in sys.modules][:_IMPORTED]
    for name in names:
        importlib.import_module(name)


def _open(places: list[str]) -> None:
    left = _FILES
    waiting = list(places)
    while waiting and left > 0:
        place = waiting.pop()
        if not os.path.isdir(place):
            with suppress(FileNotFoundError):  # a link that leads nowhere
                os.close(os.open(place, os.O_RDONLY | os.O_CLOEXEC))
            left -= 1
            continue
        waiting += [
            entry.path
            for entry in os.scandir(place)
            if entry.name.endswith((".py", ".so")) or (entry.is_dir() and entry.name != "__pycache__")
        ]


def _start_a_thread(tasks: int) -> None:
    if not starts_a_thread(tasks):
        raise RuntimeError(f"the last of {tasks} does not start")


def _write_and_read() -> None:
    with open("honest", "wb") as file:
        file.write(_BYTES)
    with open("honest", "rb") as file:
        read = file.read()
    os.unlink("honest")
    if read != _BYTES:
        raise OSError("what was written is not what is read")
