"""What a call gave, as the engine takes it."""

from __future__ import annotations

from array import array

from guerdon._worker.answers import answer_of, retry_after_of
from guerdon._worker.calls import Call
from guerdon._worker.reasons import REASON_LIMIT, is_one, reason_of, safe_text
from guerdon._worker.tracebacks import traceback_of
from guerdon._worker.values import InvalidValue, to_cells

Failed = tuple[str, str | None, bool, float | None, int | None]
"""Reason, traceback, whether another attempt may help, seconds that the other side asked to wait, its status."""


def failed(call: Call, error: BaseException) -> Failed:
    """An exception that ended a call; what it had recorded is dropped."""
    call.drop_records()
    if is_one(error, InvalidValue):
        return reason_of(error), None, False, None, None
    return reason_of(error), traceback_of(error), True, retry_after_of(error), answer_of(error)


def packed(raw: object, count: int) -> tuple[bytes, bytes, list[str]]:
    """Statuses, values, and what is wrong with those that are no reward, of a call on `count` samples.

    Raises:
        InvalidValue: It is not a list of `count` elements.
    """
    cells = to_cells(raw, count)
    statuses = bytes(status for status, _, _ in cells)
    values = array("d", [value for _, value, _ in cells]).tobytes()
    return statuses, values, [safe_text(wrong, REASON_LIMIT) for _, _, wrong in cells if wrong is not None]
