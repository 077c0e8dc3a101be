"""Limits of a function's memory, and its view of the trainer's environment.

- The memory limit is RLIMIT_DATA, the soft limit on private memory: the kernel refuses more, in C
  code too, and descendants inherit it. Reserved address space and shared memory don't count.
- It counts only what calls of the function hold, not loading, ``setup()`` or other functions.
- A worker in which a function holds half of its limit, or in which a call reached it, retires.
- A function sees its variables in ``os.environ`` from its ``setup()`` on, while its calls run.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Any

from .invoke.reasons import has_type

# Messages of failed allocations that are not MemoryErrors: of torch, C++, the system.
_NO_MEMORY_TEXTS = ("allocate memory", "bad_alloc", "out of memory", "can't start new thread")
_UNITS = ((1 << 30, "GiB"), (10**9, "GB"), (1 << 20, "MiB"), (10**6, "MB"), (1 << 10, "KiB"), (10**3, "kB"))
# Memory is not measured again within this time.
_MEASURE_NS = 10_000_000


class ResourceLimits:
    """The limits and environments of the functions of one worker.

    Args:
        hidden: Names of the trainer's variables that workers don't get.
    """

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden
        # User code may replace os.environ by another object; this one is the process's environment.
        self._environ = os.environ
        # The current function, the variables of each, and the values that they replaced in
        # os.environ.
        self._current = -1
        self._environments: dict[int, dict[str, str]] = {}
        self._replaced: dict[str, str | None] = {}
        # Bytes that the calls of each limited function held when another function took over, and
        # what the worker had besides when the current one did.
        self._held: dict[int, int] = {}
        self._base: int | None = None
        self._measured_ns = 0
        self._limit = 0  # in force; 0 is none
        # The worker has no memory or no descriptors left and must retire.
        self.exhausted = False

    def set_environment(self, function: int, variables: dict[str, str]) -> None:
        """Keeps the variables of a function for its calls."""
        self._environments[function] = variables

    def switch_to(self, function: int) -> None:
        """Makes `function` the current one: measures the one before and swaps the environment."""
        if function == self._current:
            return
        if self._base is not None:
            self._held[self._current] = max(0, _private_bytes() - self._base)
            self._base = None
        self._current = function
        for name, value in self._replaced.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value
        given = self._environments.get(function, {})
        self._replaced = {name: self._environ.get(name) for name in given}
        self._environ.update(given)

    def apply(self, recipe: dict[str, Any]) -> bool:
        """Sets the function's memory limit; False if its calls hold too much to run here."""
        limit: int | None = recipe.get("memory_limit")
        if limit is None:
            return True
        now_ns = time.monotonic_ns()
        base = self._base
        if base is None or now_ns - self._measured_ns > _MEASURE_NS:
            self._measured_ns = now_ns
            now = _private_bytes()
            if base is None:
                base = self._base = now - self._held.get(self._current, 0)
            # A worker pinned to one function keeps that function's state.
            if now - base > limit // 2 and recipe["shape"] != "batch":
                self.exhausted = True
                return False
        self._set(base + limit)
        self._limit = limit
        return True

    def lift(self) -> None:
        """Removes the memory limit."""
        if self._limit:
            self._limit = 0
            self._set(None)

    def explain(self, error: BaseException) -> str:
        """Returns the advice that the reason of an error gets if a limit caused it.

        If that is the memory limit, it is lifted and the worker must retire.
        """
        if has_type(error, OSError) and error.errno == errno.EMFILE:
            self.exhausted = True  # leaked descriptors leave none for later calls
        limit = self._limit
        if limit and _lacks_memory(error):
            self.lift()
            self.exhausted = True
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
    """Returns the advice about ``os.environ[name]`` if workers don't get the variable; else
    nothing."""
    try:
        name = error.args[0] if isinstance(error, KeyError) and error.args else None
        if type(name) is not str or name not in hidden:
            return ""
    except Exception:  # the error is user code
        return ""
    return (
        f" (this variable is hidden from workers: name it in reward(env=[{name!r}]), or set it for all of them, "
        f"Dispatcher(worker_env={{{name!r}: …}}))"
    )


def format_size(size: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    for unit, name in _UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def _lacks_memory(error: BaseException) -> bool:
    if has_type(error, MemoryError):
        return True
    if has_type(error, OSError) and error.errno == errno.ENOMEM:
        return True
    try:
        text = str(error)
    except BaseException:  # __str__ is user code, and may run out of memory too
        return False
    return any(sign in text for sign in _NO_MEMORY_TEXTS)


def _private_bytes() -> int:
    """Private memory of this process: what RLIMIT_DATA counts, and the stack."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
