"""Progress of a judge, on a page of shared memory: the waiting process sees it even if the judge
hangs.

A judge writes it and another process reads it. The program's own progress is not part of it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["COMPARE", "EXTRACT", "NONE", "REFERENCE", "SIZE", "TESTS", "JudgeState"]

NONE, EXTRACT, TESTS, COMPARE, REFERENCE = range(5)
"""Acts of a judge: nothing of these; looking for the program in a completion; tests of a row or a
function check=; a function compare=, on what a program gave or on what was expected."""


class JudgeState(ctypes.Structure):
    """Progress of the present judgement.

    Attributes:
        act: See `NONE` and the others.
        answers: How often the program answered.
        place: Of the case that is judged; negative where there are none.
        passed: Cases that were passed before it.
        cases: How many there are.
    """

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("act", "answers", "place", "passed", "cases")),
        *((name, ctypes.c_double) for name in ("_since", "_used")),
    )
    act: int
    answers: int
    place: int
    passed: int
    cases: int
    _since: float  # the end of the last wait for a program; 0 during one
    _used: float  # before that

    def begin(self) -> None:
        """Begins a judgement."""
        ctypes.memset(ctypes.addressof(self), 0, SIZE)
        self.place, self._since = -1, time.monotonic()

    def case(self, place: int, passed: int, cases: int) -> None:
        """Begins a case."""
        self.place, self.passed, self.cases = place, passed, cases

    @contextmanager
    def during(self, act: int) -> Iterator[None]:
        """Sets the act inside the ``with``, and then the act before it."""
        before, self.act = self.act, act
        try:
            yield
        finally:
            self.act = before

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Marks the time inside as waiting for a program, whose time is bounded elsewhere."""
        used = self.used()
        self._since = 0.0
        self._used = used
        try:
            yield
        finally:
            self._since = time.monotonic()

    def answered(self) -> None:
        """Records an answer of the program, which is judged from now on."""
        self.answers += 1

    def used(self) -> float:
        """Returns the seconds that it took beside waiting for programs."""
        since = self._since
        return self._used + (time.monotonic() - since if since else 0.0)

    @property
    def waits(self) -> bool:
        """Returns whether it waits for a program now."""
        return not self._since


SIZE: Final = ctypes.sizeof(JudgeState)
"""Bytes of the page that it needs."""
