"""Checking what a function may take of its worker and see of the trainer's environment.

- F-1  Fences stand on the process lane only: elsewhere the function runs in the trainer, and what was asked for could not be held.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from guerdon._units import EXPECTED_BYTES, as_bytes
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._registration.options import Options

__all__ = ["environment", "is_environment_text", "max_output", "memory_limit", "refuse_elsewhere"]

# Below this an interpreter can't even make room for small objects.
_LEAST_MEMORY: Final = 1_000_000
_MOST: Final = 1 << 62


def memory_limit(function: str, value: object) -> int | None:
    """Bytes of private memory that its calls may hold in a worker."""
    if value is None:
        return None
    size = as_bytes(value)
    if size is None or not _LEAST_MEMORY <= size <= _MOST:
        raise _wrong(function, "memory_limit", value, f"{EXPECTED_BYTES}, at least 1 MB")
    return size


def max_output(function: str, value: object) -> int | None:
    """Bytes that one call may print."""
    if value is None:
        return None
    size = as_bytes(value)
    if size is None or not 1 <= size <= _MOST:
        raise _wrong(function, "max_output", value, f"{EXPECTED_BYTES}, at least 1")
    return size


def environment(function: str, value: object) -> tuple[str, ...]:
    """Names of the trainer's variables that it may see."""
    expected = "names of environment variables, as in env=['OPENAI_API_KEY']"
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        # Not a dict's values: they may be secrets.
        shown = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
        raise RegistrationError(f"reward function {function!r}: env is {shown}: expected {expected}.")
    for name in value:
        if not is_environment_text(name) or not name or "=" in name:
            raise _wrong(function, "env", value, expected)
    return tuple(sorted(set(value)))


def is_environment_text(value: object) -> bool:
    """Whether the environment of a process can hold it: a text without NUL that the file system's encoding can write."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def refuse_elsewhere(function: str, given: Options, lane: str) -> None:
    """Refuse fences where nothing holds them (F-1)."""
    for option, value, what in (
        ("memory_limit", given.memory_limit is not None, "limits a worker process"),
        ("max_output", given.max_output is not None, "limits what a worker process prints"),
        ("env", bool(given.env), "says what a worker process sees"),
    ):
        if value:
            raise RegistrationError(
                f"reward function {function!r}: {option}= {what}, but it runs on the {lane} lane, in the trainer itself. "
                f"Add lane='process', or leave {option} out."
            )


def _wrong(function: str, option: str, value: object, expected: str) -> RegistrationError:
    return RegistrationError(f"reward function {function!r}: {option}={value!r}: expected {expected}.")
