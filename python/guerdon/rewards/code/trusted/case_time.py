"""Shares of the time for all cases of a program.

- It is time of a processor; by the clock on the wall a program may take three times as long.
- The clock on the wall runs only from a question to its answer.
- If the share of passed cases counts, the remaining time is divided among the remaining cases, so
  that a case that hangs takes no other's.
- Imports and the code of a module belong to no case: they have half of the remaining time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from guerdon.rewards.code.zygote.deadline import Deadline, wall_seconds

__all__ = ["ProgramTime"]


class ProgramTime:
    """The time of one program, from now on, and of its present case."""

    def __init__(self, timeout: float, case_timeout: float | None, *, divided: bool) -> None:
        self._paused: float | None = time.monotonic()  # time of the last answer
        self.end = self._paused + wall_seconds(timeout)  # moved by each pause
        self._timeout = timeout
        self._case_timeout = case_timeout
        self._divided = divided
        self._ended = 0.0  # seconds of processes that ended
        self._running = 0.0  # of the one that runs, at most
        self._cases = 1  # left, the present one included
        # The deadline of the present case, which its first question makes, and seconds used and
        # `end` at that time.
        self._whole: Deadline | None = None
        self._before = 0.0
        self._end = 0.0

    @property
    def used(self) -> float:
        """Seconds of a processor that the program used, at most."""
        return self._ended + self._running

    @property
    def left(self) -> float:
        """Seconds that it has left; none after its end by the clock on the wall."""
        return self._timeout - self.used if self.now < self.end else 0.0

    @property
    def now(self) -> float:
        """The time; between questions that of the last answer."""
        return time.monotonic() if self._paused is None else self._paused

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Counts the time inside as that of a question to the program."""
        if self._paused is not None:
            self.end += time.monotonic() - self._paused
        self._paused = None
        try:
            yield
        finally:
            self._paused = time.monotonic()

    def ran(self, seconds: float) -> None:
        """Records that its process ran for at most so long."""
        self._running += seconds

    def measured(self, seconds: float) -> None:
        """Records the processor time of its process until now."""
        self._running = seconds

    def process_ended(self, seconds: float | None = None) -> None:
        """Records the end of its process and its processor time; None for the last known one."""
        self._ended += self._running if seconds is None else seconds
        self._running = 0.0

    def begin(self, cases: int) -> None:
        """The next of `cases` cases begins; its time starts with its first question."""
        self._cases, self._whole = cases, None

    def fault(self) -> str:
        """Returns the reason of the time that is up; "" where there is some left."""
        if self.left <= 0:
            return "the time for all cases was up"
        return "the time for the case was up" if self._whole is not None and self._seconds(self._whole) <= 0 else ""

    def to_load(self) -> Deadline:
        """Until when a program may take to be defined; at least as long as a case."""
        case, left = self._of_case(), self.left
        return case if case.seconds > left / 2 else Deadline(left / 2, self.end)

    def to_answer(self) -> Deadline:
        """Until when it may take to answer."""
        if self._whole is None:
            self._whole, self._before, self._end = self._of_case(), self.used, self.end
            return self._whole
        return Deadline(max(self._seconds(self._whole), 0.0), self._until(self._whole))

    def _of_case(self) -> Deadline:
        """Until when the present case may take if it begins now."""
        now, seconds, end = self.now, max(self.left, 0.0), self.end
        if self._case_timeout is not None:
            seconds = min(seconds, self._case_timeout)
            end = min(end, now + wall_seconds(seconds))
        elif self._divided:
            seconds, end = seconds / self._cases, now + (end - now) / self._cases
        return Deadline(seconds, end)

    def _seconds(self, whole: Deadline) -> float:
        return 0.0 if self.now >= self._until(whole) else whole.seconds - (self.used - self._before)

    def _until(self, whole: Deadline) -> float:
        """The end of a case by the clock on the wall, moved by the pauses since it began."""
        return whole.end + self.end - self._end
