"""Tracebacks of exceptions as text.

- These functions never raise, even if reading the exception does.
- The text is valid UTF-8 of about `TRACEBACK_LIMIT` bytes, and the work is bounded too: Python's
  own formatting would go through messages and causes of any size before anything is cut.
- It shows user frames only: those of the lanes and of the worker are left out.
"""

from __future__ import annotations

import builtins
import os
from typing import Any

from .reasons import TRUNCATED, has_type, reason_of, truncated_utf8

TRACEBACK_LIMIT = 16384

# The most frames shown of one stack, half of them from either end.
_FRAMES = 100
# Bound of the exceptions for Python's own formatting, and of the characters of each.
_MOST_EXCEPTIONS = 32
_MOST_CHARACTERS = 4096
# Number of causes and of members of a group that are shown beyond that.
_SHOWN_CAUSES = 8
_SHOWN_MEMBERS = 3

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11 on
_WORKER = os.path.dirname(os.path.dirname(__file__))  # as frames name it
_OURS = (_WORKER + os.sep, os.path.join(os.path.dirname(_WORKER), "_lanes") + os.sep)
_HEADER = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def prepare() -> None:
    """Imports the modules that tracebacks need, which takes 15 to 50 ms. Otherwise each forked
    worker imports the modules at the first failure, and a call interrupted at its timeout may be
    killed during the import."""
    try:
        raise ValueError
    except ValueError as error:
        _formatted(error)


def traceback_of(error: BaseException) -> str | None:
    """The traceback of an exception and its causes, user frames only; None if it can't be read."""
    try:
        text = _formatted(error) if _is_small(error) else _shortened(error)
    except BaseException:  # the exception's own methods run while it is formatted
        try:
            text = _shortened(error)  # reads fewer attributes
        except BaseException:
            return None
    if len(text) <= TRACEBACK_LIMIT:
        return truncated_utf8(text, TRACEBACK_LIMIT)
    # Both ends matter: its beginning, and the exception.
    head, tail = TRACEBACK_LIMIT // 4, TRACEBACK_LIMIT // 4 * 3
    return truncated_utf8(text[:head], head) + f"\n  {TRUNCATED}\n" + truncated_utf8(text[-tail:], tail)


def _is_small(error: BaseException) -> bool:
    """Returns whether Python's own formatting is fast."""
    waiting, seen, count = [error], {id(error)}, 0
    while waiting:
        one = waiting.pop()
        count += 1
        members = one.exceptions if has_type(one, _GROUP) else ()
        if count + len(members) > _MOST_EXCEPTIONS or not _is_short(one):
            return False
        waiting += members  # a repeated member is formatted again
        for other in (one.__cause__, one.__context__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
    return True


def _is_short(error: BaseException) -> bool:
    try:
        if len(str(error)) > _MOST_CHARACTERS:
            return False
    except Exception:  # it has no text
        return True
    if has_type(error, SyntaxError) and not _is_short_line(error):
        return False
    notes = getattr(error, "__notes__", None) or ()
    few = isinstance(notes, (list, tuple)) and len(notes) <= _MOST_EXCEPTIONS
    return few and all(isinstance(note, str) and len(note) <= _MOST_CHARACTERS for note in notes)


def _is_short_line(error: SyntaxError) -> bool:
    """Returns whether the source line that it shows, and the carets below it, are short."""
    texts: tuple[object, ...] = (error.filename, error.text)
    columns: tuple[object, ...] = (error.offset, error.end_offset)
    return all(text is None or (isinstance(text, str) and len(text) <= _MOST_CHARACTERS) for text in texts) and all(
        column is None or (isinstance(column, int) and column <= _MOST_CHARACTERS) for column in columns
    )


def _formatted(error: BaseException) -> str:
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
    """The traceback of a large exception: its last causes, the first members of groups."""
    import traceback

    parts: list[str] = []
    seen: set[int] = set()
    one: BaseException | None = error
    connector = ""
    while one is not None and id(one) not in seen:
        if len(parts) == _SHOWN_CAUSES:
            parts.append(f"{TRUNCATED}\n{connector}")
            break
        seen.add(id(one))
        report = traceback.TracebackException(Exception, Exception(), one.__traceback__, lookup_lines=False)
        _keep_user_frames(report)
        head = _HEADER if one.__traceback__ else ""
        parts.append(f"{head}{''.join(report.stack.format())}{reason_of(one)}\n{_members(one)}{connector}")
        if one.__cause__ is not None:
            one, connector = one.__cause__, _CAUSE
        else:
            one, connector = None if one.__suppress_context__ else one.__context__, _CONTEXT
    return "".join(reversed(parts))


def _members(error: BaseException) -> str:
    """The first exceptions of a group, a line each."""
    members = error.exceptions if has_type(error, _GROUP) else ()
    lines = [f"  {reason_of(member)}\n" for member in members[:_SHOWN_MEMBERS]]
    if len(members) > _SHOWN_MEMBERS:
        lines.append(f"  and {len(members) - _SHOWN_MEMBERS} more\n")
    return "".join(lines)


def _keep_user_frames(report: object) -> None:
    """Drops our own frames from one TracebackException."""
    stack = report.stack  # type: ignore[attr-defined]  # `traceback` is imported only once something fails
    stack[:] = [frame for frame in stack if not frame.filename.startswith(_OURS)]
    # Endless recursion has a thousand frames; formatting all takes 0.3 s on Python 3.13.
    del stack[_FRAMES // 2 : -(_FRAMES // 2)]
