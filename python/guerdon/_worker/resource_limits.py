"""What the function at work may take of this worker, and see of the trainer's environment.

- F-1  A memory limit is the kernel's soft limit on private memory (RLIMIT_DATA): what reaches it is refused, in C code too, and
       descendants inherit it. Address space that a library merely reserves doesn't count; memory shared by mappings neither.
- F-2  It counts what calls of the function took and hold in this worker, and nothing else: not what loading and ``setup()`` took,
       nor other functions' calls. So it is measured when the function's turn begins and when it ends.
- F-3  A worker in which earlier calls of a function hold half of its limit runs no more of them: it retires, and a fresh one takes
       the frame. One whose call ran into its limit retires after it. So what one call left behind fails no other.
- F-4  A function finds its part of the environment in ``os.environ`` from its ``setup()`` on and while it is the one at work; before
       another's turn everything is as it was.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import Any

from . import linux
from .invoke.reasons import has_type
from .timeout_signal import CallInterrupted

# What a failed allocation is called where it is no MemoryError: by torch, C++, the system.
_SIGNS = ("allocate memory", "bad_alloc", "out of memory", "can't start new thread")
_UNITS = ((1 << 30, "GiB"), (10**9, "GB"), (1 << 20, "MiB"), (10**6, "MB"), (1 << 10, "KiB"), (10**3, "kB"))
# A frame that begins sooner after a look at the memory is not worth another one.
_LOOK_NS = 10_000_000


class ResourceLimits:
    """The fences of the functions of one worker.

    Args:
        hidden: Names of the trainer's variables that are kept from workers.
    """

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden
        # User code may put something else in its place: what is the process's environment stays.
        self._environ = os.environ
        # The function at work, and what stood in os.environ in place of its variables.
        self._at_work = -1
        self._given: dict[int, dict[str, str]] = {}
        self._before: dict[str, str | None] = {}
        # Bytes that the calls of each limited function hold, as its last turn ended; what the worker had besides as this turn began.
        self._held: dict[int, int] = {}
        self._base: int | None = None
        self._looked_ns = 0
        self._limit = 0  # in force; 0 is none
        # The worker has no memory (F-3) or no descriptors left for calls.
        self.spent = False

    def give(self, function: int, variables: dict[str, str]) -> None:
        """Keeps a function's part of the environment for its turns."""
        self._given[function] = variables

    def turn_to(self, function: int) -> None:
        """Ends the turn of the function before and shows this one its part of the environment (F-4)."""
        if function == self._at_work:
            return
        if self._base is not None:
            self._held[self._at_work] = max(0, _private_bytes() - self._base)
            self._base = None
        self._at_work = function
        for name, value in self._before.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value
        given = self._given.get(function, {})
        self._before = {name: self._environ.get(name) for name in given}
        self._environ.update(given)

    def limit(self, recipe: dict[str, Any]) -> bool:
        """Puts the function's memory limit in force; False when its calls hold too much for it to run here (F-3)."""
        limit: int | None = recipe.get("memory_limit")
        if limit is None:
            return True
        now_ns = time.monotonic_ns()
        base = self._base
        if base is None or now_ns - self._looked_ns > _LOOK_NS:
            self._looked_ns = now_ns
            has = _private_bytes()
            if base is None:
                base = self._base = has - self._held.get(self._at_work, 0)
            # A worker that one function has to itself keeps that function's state.
            if has - base > limit // 2 and recipe["shape"] != "batch":
                self.spent = True
                return False
        self._set(base + limit)
        self._limit = limit
        return True

    def lift(self) -> None:
        """Ends the memory limit in force."""
        if self._limit:
            self._limit = 0
            self._set(None)

    def explain(self, error: BaseException) -> str:
        """What a fence has to do with an error, to be said after its reason; the memory limit, if it has, is lifted (F-3)."""
        if has_type(error, OSError) and error.errno == errno.EMFILE:
            self.spent = True  # what leaked descriptors leaves none for the calls behind it
        limit = self._limit
        if limit and _lacks_memory(error):
            self.lift()
            self.spent = True
            return f" (memory_limit of {format_size(limit)})"
        return missing_variable(error, self._hidden)

    @staticmethod
    def _set(most: int | None) -> None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = hard if most is None else most
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def missing_variable(error: BaseException, hidden: frozenset[str]) -> str:
    """What to do about an ``os.environ[name]`` that failed because the variable is kept from workers; else nothing."""
    try:
        name = error.args[0] if isinstance(error, KeyError) and error.args else None
        if type(name) is not str or name not in hidden:
            return ""
    except Exception:  # the error is user code
        return ""
    return (
        f" (this variable of the trainer's is kept from workers: name it, reward(env=[{name!r}]), or give it to all of them, "
        f"Dispatcher(worker_env={{{name!r}: …}}))"
    )


def format_size(size: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    for unit, name in _UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def flush_output() -> None:
    """Has everything that the call printed leave this process, what C code printed too."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except CallInterrupted:
            raise
        except BaseException:  # closed, or replaced by user code that may raise anything
            continue
    linux.flush_c()


def _lacks_memory(error: BaseException) -> bool:
    if has_type(error, MemoryError):
        return True
    if has_type(error, OSError) and error.errno == errno.ENOMEM:
        return True
    try:
        text = str(error)
    except BaseException:  # __str__ is user code, and may lack memory itself
        return False
    return any(sign in text for sign in _SIGNS)


def _private_bytes() -> int:
    """Private memory of this process: what RLIMIT_DATA counts, and the stack."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
