"""Results of a call for the engine."""

from __future__ import annotations

import re
from array import array

from guerdon._worker.columns import UNREADABLE, UnreadableValueError
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.http_errors import http_status_of, retry_after_of
from guerdon._worker.invoke.reasons import REASON_LIMIT, has_type, reason_of, truncated_utf8
from guerdon._worker.invoke.returned_values import InvalidValue, to_cells
from guerdon._worker.invoke.tracebacks import traceback_of

# The message of asyncio for a future, a task or a lock.
_OTHER_LOOP = re.compile(r"(attached to a|bound to a) different (event )?loop")
_SHARE_LOOP = (
    "a client or lock that this function uses belongs to the event loop of another one: give all functions that use "
    'it the same loop, reward(…, loop="shared").'
)

Failed = tuple[str, str | None, bool, float | None, int | None]
"""Reason, traceback, whether to retry, the server's ``Retry-After`` in seconds, its status."""


def failed(call: Call, error: BaseException) -> Failed:
    """An exception that ended a call; what it had recorded is dropped."""
    call.drop_records()
    if has_type(error, UnreadableValueError):
        return UNREADABLE + reason_of(error.cause), traceback_of(error.cause), False, None, None
    if has_type(error, InvalidValue):
        return reason_of(error), None, False, None, None
    reason = reason_of(error)
    if has_type(error, RuntimeError) and _OTHER_LOOP.search(reason):
        reason = truncated_utf8(f"{_SHARE_LOOP} {reason}", REASON_LIMIT)
    return reason, traceback_of(error), True, retry_after_of(error), http_status_of(error)


def packed(raw: object, count: int) -> tuple[bytes, bytes, list[str]]:
    """Returns for a call on `count` samples: statuses, values, and the errors of samples without
    one.

    Raises:
        InvalidValue: It is not a list of `count` elements.
    """
    cells = to_cells(raw, count)
    statuses = bytes(status for status, _, _ in cells)
    values = array("d", [value for _, value, _ in cells]).tobytes()
    return statuses, values, [truncated_utf8(wrong, REASON_LIMIT) for _, _, wrong in cells if wrong is not None]
