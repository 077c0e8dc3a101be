"""Statuses of a cell."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Status"]


class Status(IntEnum):
    """Outcome of one (sample, function) cell, as in ``RewardBatch.status`` (uint8).

    The numbers are shared with the engine and the workers and never change.

    Examples:
        >>> Status(2).label, Status.TIMEOUT.failed, Status.ABSTAINED.failed, Status.SKIPPED.failed
        ('timeout', True, False, False)
    """

    OK = 0
    """The cell holds a reward."""
    ABSTAINED = 1
    """The function returned None: no opinion. Not a failure."""
    TIMEOUT = 2
    """The last attempt, the deadline or the batch's budget ran out."""
    ERROR = 3
    """The function raised, or returned a value that is not a reward; or its setup failed."""
    CRASHED = 4
    """The worker died under this sample, and again when it was tried alone."""
    CANCELLED = 5
    """Ctrl-C, ``cancel()`` or ``close()`` came first."""
    SKIPPED = 6
    """Its ``run_if`` was false, so the function was not called. Not a failure."""

    @property
    def failed(self) -> bool:
        """Returns whether the cell failed: anything but ok, abstained and skipped."""
        return Status.TIMEOUT <= self <= Status.CANCELLED

    @property
    def label(self) -> str:
        """The word used in logs, metrics and files: ``"ok"``, ``"timeout"``, …"""
        return self.name.lower()
