"""Acts that every program may do: a fence that keeps an honest program from its work would have
each of them score 0."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.readable import places_of
from guerdon.rewards.code.zygote.tasks import SHORTAGE, starts_a_thread

__all__ = ["Ability", "abilities"]

# Small modules of the library; two that are not loaded yet are imported.
_SELDOM: Final = ("sched", "csv", "difflib", "colorsys", "wave", "calendar")
_IMPORTED: Final = 2
# Files of a module to look at: all have the mode that it was installed with.
_FILES: Final = 1000
_BYTES: Final = b"guerdon" * 100


@dataclass(frozen=True)
class Ability:
    """Something that a program must be able to do, and what helps where it can't."""

    name: str
    advice: str
    attempt: Callable[[], object]


def abilities(folder: str | None, spec: FenceSpec) -> list[Ability]:
    """The abilities of programs with these permissions, and this folder."""
    library = os.path.dirname(os.__file__)
    found = [Ability("import a module of the standard library", _opened(library), _import_some)]
    for name in spec.modules:
        places = places_of((name,))
        where = places[0] if places else library
        found.append(Ability(f"read the files of modules={name!r}", _opened(where), partial(_open, places)))
    found.append(Ability("start a thread", f"{SHORTAGE}.", partial(_start_a_thread, spec.tasks)))
    if folder is not None:
        found.append(Ability("write and read a file in its folder", "free memory on this machine.", _write_and_read))
    return found


def _opened(place: str) -> str:
    return (
        f"the user that programs have may not read it. Let all users (chmod -R o+rX {place}), or run as the user "
        "that it belongs to, and not as root."
    )


def _import_some() -> None:
    for name in [name for name in _SELDOM if name not in sys.modules][:_IMPORTED]:
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
