"""Tracebacks of exceptions as text.

- K-1  Nothing here raises, whatever the exception does when it is looked at.
- K-2  The text is valid UTF-8 of about `TRACEBACK_LIMIT` bytes. So is the work bounded: what an exception says and what
       it refers to may be of any size, and Python's own formatting goes through all of it before anything is cut.
- K-3  A traceback shows user frames only: the frames of the lanes and of the worker are left out.
"""

from __future__ import annotations

import builtins
import os
from typing import Any

from .reasons import TRUNCATED, has_type, reason_of, truncated_utf8

TRACEBACK_LIMIT = 16384

# Most frames of one stack that are shown, half of them from either end.
_FRAMES = 100
# Up to so many exceptions, of so many characters each, are left to Python's own formatting.
_EXCEPTIONS = 32
_TEXT = 4096
# Of more than that: so many in the chain of causes are shown, and so many members of a group.
_CAUSES = 8
_MEMBERS = 3

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11 on
_WORKER = os.path.dirname(os.path.dirname(__file__))  # as frames name it
_OURS = (_WORKER + os.sep, os.path.join(os.path.dirname(_WORKER), "_lanes") + os.sep)
_HEAD = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def traceback_of(error: BaseException) -> str | None:
    """The traceback of an exception and of its causes, user frames only; None when it can't be had."""
    try:
        text = _whole(error) if _is_small(error) else _shortened(error)
    except BaseException:  # K-1: the exception's own methods run while it is formatted
        try:
            text = _shortened(error)  # which looks at less of it
        except BaseException:
            return None
    if len(text) <= TRACEBACK_LIMIT:
        return truncated_utf8(text, TRACEBACK_LIMIT)
    # Both ends matter: where it began, and what was raised.
    head, tail = TRACEBACK_LIMIT // 4, TRACEBACK_LIMIT // 4 * 3
    return truncated_utf8(text[:head], head) + f"\n  {TRUNCATED}\n" + truncated_utf8(text[-tail:], tail)


def _is_small(error: BaseException) -> bool:
    """Whether Python's own formatting takes no time worth mention (K-2)."""
    waiting, seen, count = [error], {id(error)}, 0
    while waiting:
        one = waiting.pop()
        count += 1
        members = one.exceptions if has_type(one, _GROUP) else ()
        if count + len(members) > _EXCEPTIONS or not _is_short(one):
            return False
        waiting += members  # one that is there twice is formatted twice
        for other in (one.__cause__, one.__context__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
    return True


def _is_short(error: BaseException) -> bool:
    try:
        if len(str(error)) > _TEXT:
            return False
    except Exception:  # it has no text: that is short
        return True
    if has_type(error, SyntaxError) and not _is_short_line(error):
        return False
    notes = getattr(error, "__notes__", None) or ()
    few = isinstance(notes, (list, tuple)) and len(notes) <= _EXCEPTIONS
    return few and all(isinstance(note, str) and len(note) <= _TEXT for note in notes)


def _is_short_line(error: SyntaxError) -> bool:
    """Whether the line that it shows, and the marks below that, are short."""
    texts: tuple[object, ...] = (error.filename, error.text)
    places: tuple[object, ...] = (error.offset, error.end_offset)
    return all(text is None or (isinstance(text, str) and len(text) <= _TEXT) for text in texts) and all(
        place is None or (isinstance(place, int) and place <= _TEXT) for place in places
    )


def _whole(error: BaseException) -> str:
    import traceback

    report = traceback.TracebackException(type(error), error, error.__traceback__, lookup_lines=False, compact=True)
    waiting, seen = [report], {id(report)}
    while waiting:
        part = waiting.pop()
        _keep_user_frames(part)
        for other in (part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
    return "".join(report.format())


def _shortened(error: BaseException) -> str:
    """The same of an exception that is too large for that: its last causes, the first members of groups."""
    import traceback

    parts: list[str] = []
    seen: set[int] = set()
    one: BaseException | None = error
    link = ""
    while one is not None and id(one) not in seen:
        if len(parts) == _CAUSES:
            parts.append(f"{TRUNCATED}\n{link}")
            break
        seen.add(id(one))
        report = traceback.TracebackException(Exception, Exception(), one.__traceback__, lookup_lines=False)
        _keep_user_frames(report)
        head = _HEAD if one.__traceback__ else ""
        parts.append(f"{head}{''.join(report.stack.format())}{reason_of(one)}\n{_members(one)}{link}")
        if one.__cause__ is not None:
            one, link = one.__cause__, _CAUSE
        else:
            one, link = None if one.__suppress_context__ else one.__context__, _CONTEXT
    return "".join(reversed(parts))


def _members(error: BaseException) -> str:
    """Some of a group's exceptions, a line each."""
    members = error.exceptions if has_type(error, _GROUP) else ()
    lines = [f"  {reason_of(member)}\n" for member in members[:_MEMBERS]]
    if len(members) > _MEMBERS:
        lines.append(f"  and {len(members) - _MEMBERS} more\n")
    return "".join(lines)


def _keep_user_frames(report: object) -> None:
    """Drops our frames from one TracebackException (K-3)."""
    stack = report.stack  # type: ignore[attr-defined]  # `traceback` is imported only once something fails
    stack[:] = [frame for frame in stack if not frame.filename.startswith(_OURS)]
    # A recursion without end has a thousand frames; showing each takes a third of a second on Python 3.13.
    del stack[_FRAMES // 2 : -(_FRAMES // 2)]
