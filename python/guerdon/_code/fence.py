"""The fences around a program's process: none yet.

- ``"strict"`` is refused until every layer of it is here: never a weaker fence than was asked for.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Literal

from guerdon._worker.linux import exit_with_parent, no_core_dumps, prefer_to_die
from guerdon.errors import RegistrationError

__all__ = ["FenceSpec", "Level", "Prepared", "prepare", "probe"]


@dataclass(frozen=True)
class FenceSpec:
    """What programs may do.

    Attributes:
        isolation: ``"strict"`` or ``"none"``.
        memory_limit: Bytes.
        cpu_seconds: Of processor time.
    """

    isolation: Literal["strict", "none"] = "strict"
    memory_limit: int = 512 << 20
    cpu_seconds: int = 60


@dataclass(frozen=True)
class Level:
    """The fences that hold here."""

    name: str


class Prepared:
    """What a zygote has ready for its children."""

    def __init__(self, spec: FenceSpec) -> None:
        self._spec = spec
        self._parent = os.getpid()

    def fork(self) -> int:
        """As `os.fork`."""
        return os.fork()

    def enter(self) -> None:
        """In the child, before any of the program."""
        os.setsid()
        exit_with_parent(self._parent)
        no_core_dumps()
        prefer_to_die(1000)
        os.environ.clear()
        memory, seconds = self._spec.memory_limit, self._spec.cpu_seconds
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def prepare(spec: FenceSpec) -> Prepared:
    """In the zygote, before its first fork."""
    return Prepared(spec)


def probe(spec: FenceSpec) -> Level:
    """The level that holds on this machine.

    Raises:
        RegistrationError: It is less than the spec asks for.
    """
    if spec.isolation == "strict":
        raise RegistrationError(
            'code_reward: isolation="strict" needs fences that this version does not have yet. isolation="none" runs programs '
            "with the rights of this user: only for programs that you trust."
        )
    return Level("none")
