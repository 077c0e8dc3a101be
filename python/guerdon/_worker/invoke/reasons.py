"""Exceptions as text: the reason of a failed cell.

- These functions never raise, even if reading the exception's text does.
- The text is valid UTF-8 (other characters are escaped) of at most `REASON_LIMIT` bytes. A longer
  text is cut first.
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
    """`isinstance` without reading ``__class__``, which user code may have overridden."""
    return issubclass(type(error), kind)


def reason_of(error: BaseException) -> str:
    """``Type: message`` of an exception, the reason of an outcome."""
    name = _name_of(error)
    try:
        message = _prefix(str(error))
    except BaseException as problem:  # __str__ is user code too
        message = f"(no message: its __str__ raised {_name_of(problem)})"
    return truncated_utf8(f"{name}: {message}" if message else name, REASON_LIMIT)


class SetupTimeout(TimeoutError):
    """`setup()` took longer than its ``setup_timeout``; the text is the whole reason."""


def setup_reason_of(error: BaseException) -> str:
    """The reason of cells whose function failed in `setup()`."""
    if type(error) is SetupTimeout:
        return str(error)
    return f"setup() failed: {reason_of(error)}"


def _name_of(error: BaseException) -> str:
    try:
        return _prefix(str(type(error).__name__))
    except BaseException:  # its metaclass is user code too
        return "an exception without a name"


def _prefix(text: str) -> str:
    """The part that is shown, as a plain `str`: a subclass of it may raise in any method."""
    return str.__getitem__(text, slice(REASON_LIMIT + 1))
