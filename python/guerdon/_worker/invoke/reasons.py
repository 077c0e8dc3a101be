"""Exceptions as text: what a failed cell says of itself.

- R-1  Nothing here raises, whatever the exception does when it is asked for its text.
- R-2  The text is valid UTF-8 (odd characters are escaped) and bounded: `REASON_LIMIT` bytes. What is longer is cut
       before anything is done with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing import TypeGuard

E = TypeVar("E", bound=BaseException)

REASON_LIMIT = 2048
TRUNCATED = "… (shortened)"


def truncated_utf8(text: str, limit: int) -> str:
    """`text` as valid UTF-8 of at most about `limit` bytes; the end is cut."""
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[:limit].decode("utf-8", "ignore") + TRUNCATED


def has_type(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """`isinstance`, which would ask the exception for its ``__class__`` (R-1)."""
    return issubclass(type(error), kind)


def reason_of(error: BaseException) -> str:
    """``Type: message`` of an exception, as it stands in an outcome."""
    name = _name_of(error)
    try:
        message = _begin(str(error))
    except BaseException as problem:  # __str__ is user code too
        message = f"(no message: its __str__ raised {_name_of(problem)})"
    return truncated_utf8(f"{name}: {message}" if message else name, REASON_LIMIT)


class SetupTimeout(TimeoutError):
    """`setup()` took too long; its text is the whole reason."""


def setup_reason_of(error: BaseException) -> str:
    """Why cells failed whose function's `setup()` did."""
    if type(error) is SetupTimeout:
        return str(error)
    return f"setup() failed: {reason_of(error)}"


def _name_of(error: BaseException) -> str:
    try:
        return _begin(str(type(error).__name__))
    except BaseException:  # its metaclass is user code too
        return "an exception without a name"


def _begin(text: str) -> str:
    """As much of it as is shown, as a text of Python's own: one of the user's class may raise at whatever is done with it."""
    return str.__getitem__(text, slice(REASON_LIMIT + 1))
