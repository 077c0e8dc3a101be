"""Exceptions as text: what a failed cell says of itself.

- R-1  Nothing here raises, whatever the exception does when it is asked for its text.
- R-2  The text is valid UTF-8 (odd characters are escaped) and bounded: `REASON_LIMIT` bytes for a reason,
       `TRACEBACK_LIMIT` for a traceback.
- R-3  A traceback shows user frames only: the frames of the lanes and of the worker are left out.
"""

from __future__ import annotations

import os

REASON_LIMIT = 2048
TRACEBACK_LIMIT = 16384

# Most frames of one stack that are shown, half of them from either end.
_FRAMES = 100
_CUT = "… (shortened)"
_HERE = os.path.dirname(__file__)  # as it stands in the frames
_OURS = (_HERE + os.sep, os.path.join(os.path.dirname(_HERE), "_lanes") + os.sep)


def safe_text(text: str, limit: int) -> str:
    """`text` as valid UTF-8 of at most about `limit` bytes; the end is cut."""
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[:limit].decode("utf-8", "ignore") + _CUT


def reason_of(error: BaseException) -> str:
    """``Type: message`` of an exception, as it stands in an outcome."""
    name = _name_of(error)
    try:
        message = str(error)
    except BaseException as problem:  # __str__ is user code too
        message = f"(no message: its __str__ raised {_name_of(problem)})"
    return safe_text(f"{name}: {message}" if message else name, REASON_LIMIT)


def _name_of(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # its metaclass is user code too
        return "an exception without a name"


def traceback_of(error: BaseException) -> str | None:
    """The traceback of an exception and of its causes, user frames only; None when it can't be had."""
    try:
        import traceback

        report = traceback.TracebackException(type(error), error, error.__traceback__, lookup_lines=False, compact=True)
        _keep_user_frames(report)
        text = "".join(report.format())
    except BaseException:  # the exception's own methods run while it is formatted
        return None
    if len(text) <= TRACEBACK_LIMIT:
        return safe_text(text, TRACEBACK_LIMIT)
    # Both ends matter: where it began, and what was raised.
    head, tail = TRACEBACK_LIMIT // 4, TRACEBACK_LIMIT // 4 * 3
    return safe_text(text[:head], head) + f"\n  {_CUT}\n" + safe_text(text[-tail:], tail)


def _keep_user_frames(report: object) -> None:
    """Drops our frames from a TracebackException and from all it refers to."""
    waiting, seen = [report], set()
    while waiting:
        part = waiting.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        stack = getattr(part, "stack", None)
        if stack is not None:
            stack[:] = [frame for frame in stack if not frame.filename.startswith(_OURS)]
            # A recursion without end has a thousand frames; showing each takes a third of a second on Python 3.13.
            del stack[_FRAMES // 2 : -(_FRAMES // 2)]
        waiting.append(getattr(part, "__cause__", None))
        waiting.append(getattr(part, "__context__", None))
        waiting.extend(getattr(part, "exceptions", None) or ())
