"""Checks of ``memory_limit``, ``max_output`` and ``env``.

They hold on the process lane only: elsewhere the function runs in the trainer's process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from guerdon._system.units import EXPECTED_BYTES, as_bytes
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.options import Options

__all__ = ["environment", "is_environment_text", "max_output", "memory_limit", "refuse_on_other_lanes"]

# Less memory keeps an interpreter from allocating small objects.
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
    """Names of the trainer's variables that the function gets."""
    expected = "names of environment variables, as in env=['OPENAI_API_KEY']"
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        # A dict's values may be secrets: not shown.
        shown = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
        raise RegistrationError(f"reward function {function!r}: env is {shown}: expected {expected}.")
    for name in value:
        if not is_environment_text(name) or not name or "=" in name:
            raise _wrong(function, "env", value, expected)
    return tuple(sorted(set(value)))


def is_environment_text(value: object) -> bool:
    """Returns whether the environment of a process can hold it: a string without NUL that can be
    encoded."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def refuse_on_other_lanes(function: str, given: Options, lane: str) -> None:
    """Refuse limits on lanes that can't enforce them."""
    for option, is_set, what in (
        ("memory_limit", given.memory_limit is not None, "limits a worker process"),
        ("max_output", given.max_output is not None, "limits what a worker process prints"),
        ("env", bool(given.env), "sets what a worker process gets"),
    ):
        if is_set:
            raise RegistrationError(
                f"reward function {function!r}: {option}= {what}, but it runs on the {lane} lane, in the trainer's process. "
                f"Add lane='process', or leave {option} out."
            )


def _wrong(function: str, option: str, value: object, expected: str) -> RegistrationError:
    return RegistrationError(f"reward function {function!r}: {option}={value!r}: expected {expected}.")
