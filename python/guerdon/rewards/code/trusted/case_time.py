"""How the time for all cases of a program is divided.

- It starts with the first case. Where the share of passed cases counts, what is left is divided
  among the cases that are left, so that one that hangs takes no other's.
- Imports and the code of a module are no case's: they have half of what is left.
"""

from __future__ import annotations

import time

__all__ = ["CaseTime", "ProgramTime"]


class ProgramTime:
    """The time of one program, from now on.

    Args:
        timeout: Seconds for all cases.
        case_timeout: Seconds for one; None: what is left.
        divided: Whether what is left is divided among the cases that are left.
    """

    def __init__(self, timeout: float, case_timeout: float | None, *, divided: bool) -> None:
        self.deadline = time.monotonic() + timeout
        self._case_timeout = case_timeout
        self._divided = divided

    def case(self, left: int) -> CaseTime:
        """The time of the next of `left` cases."""
        return CaseTime(self, left)

    def of_case(self, left: int) -> float:
        """Until when a case may take that begins now."""
        now = time.monotonic()
        if self._case_timeout is not None:
            return min(self.deadline, now + self._case_timeout)
        return now + (self.deadline - now) / left if self._divided else self.deadline


class CaseTime:
    """The time of one case; it starts when the program is asked for the first time."""

    def __init__(self, program: ProgramTime, left: int) -> None:
        self._program = program
        self._left = left
        self._deadline: float | None = None

    def fault(self) -> str:
        """Which time is up; "" where there is some left."""
        now = time.monotonic()
        if now >= self._program.deadline:
            return "the time for all cases was up"
        return "the time for the case was up" if self._deadline is not None and now >= self._deadline else ""

    def to_load(self) -> float:
        """Until when a program may take to be defined; at least as long as a case."""
        now = time.monotonic()
        return max(self._program.of_case(self._left), now + (self._program.deadline - now) / 2)

    def to_answer(self) -> float:
        """Until when it may take to answer."""
        if self._deadline is None:
            self._deadline = self._program.of_case(self._left)
        return self._deadline
