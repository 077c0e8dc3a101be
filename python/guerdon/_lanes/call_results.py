"""What a call gave, as the engine takes it."""

from __future__ import annotations

from array import array

from guerdon._worker.columns import UNREADABLE, UnreadableValueError
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.http_errors import http_status_of, retry_after_of
from guerdon._worker.invoke.reasons import REASON_LIMIT, has_type, reason_of, truncated_utf8
from guerdon._worker.invoke.returned_values import InvalidValue, to_cells
from guerdon._worker.invoke.tracebacks import traceback_of

Failed = tuple[str, str | None, bool, float | None, int | None]
"""Reason, traceback, whether to retry, seconds that the server asked to wait, its status."""


def failed(call: Call, error: BaseException) -> Failed:
    """An exception that ended a call; what it had recorded is dropped."""
    call.drop_records()
    if has_type(error, UnreadableValueError):
        return UNREADABLE + reason_of(error.cause), traceback_of(error.cause), False, None, None
    if has_type(error, InvalidValue):
        return reason_of(error), None, False, None, None
    return reason_of(error), traceback_of(error), True, retry_after_of(error), http_status_of(error)


def packed(raw: object, count: int) -> tuple[bytes, bytes, list[str]]:
    """Of a call on `count` samples: statuses, values, what is wrong with those that are none.

    Raises:
        InvalidValue: It is not a list of `count` elements.
    """
    cells = to_cells(raw, count)
    statuses = bytes(status for status, _, _ in cells)
    values = array("d", [value for _, value, _ in cells]).tobytes()
    return statuses, values, [truncated_utf8(wrong, REASON_LIMIT) for _, _, wrong in cells if wrong is not None]
