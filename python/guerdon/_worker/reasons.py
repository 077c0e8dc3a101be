"""Exceptions as text: what a failed cell says of itself.

- R-1  Nothing here raises, whatever the exception does when it is asked for its text.
- R-2  The text is valid UTF-8 (odd characters are escaped) and bounded: `REASON_LIMIT` bytes. What is longer is cut
       before anything is done with it.
"""

from __future__ import annotations

REASON_LIMIT = 2048
CUT = "… (shortened)"


def safe_text(text: str, limit: int) -> str:
    """`text` as valid UTF-8 of at most about `limit` bytes; the end is cut."""
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[:limit].decode("utf-8", "ignore") + CUT


def reason_of(error: BaseException) -> str:
    """``Type: message`` of an exception, as it stands in an outcome."""
    name = _name_of(error)
    try:
        message = str(error)[: REASON_LIMIT + 1]
    except BaseException as problem:  # __str__ is user code too
        message = f"(no message: its __str__ raised {_name_of(problem)})"
    return safe_text(f"{name}: {message}" if message else name, REASON_LIMIT)


class SetupOverdue(TimeoutError):
    """`setup()` took too long; its text is the whole reason."""


def setup_reason_of(error: BaseException) -> str:
    """Why cells failed whose function's `setup()` did."""
    if type(error) is SetupOverdue:
        return str(error)
    return f"setup() failed: {reason_of(error)}"


def _name_of(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # its metaclass is user code too
        return "an exception without a name"
