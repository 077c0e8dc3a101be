"""Progress of a judge, on a page of memory: whoever waits for it sees that, even where it hangs.

A judge writes it and another process reads it. The program's own progress is not part of it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["COMPARE", "EXTRACT", "NONE", "REFERENCE", "SIZE", "TESTS", "JudgeState"]

NONE, EXTRACT, TESTS, COMPARE, REFERENCE = range(5)
"""Acts of a judge: nothing of these; looking for the program in a completion; tests of a row or a
function check=; a function compare=, on what a program gave or on what was expected."""

_FIELDS: Final = {name: 8 * place for place, name in enumerate(("act", "answers", "place", "passed", "cases"))}
_NUMBER: Final = struct.Struct("<q")
_TIME: Final = struct.Struct("<d")
_SINCE, _USED = 8 * len(_FIELDS), 8 * len(_FIELDS) + 8
SIZE: Final = 8 * len(_FIELDS) + 16
"""Bytes of the page that it needs."""


class JudgeState:
    """Progress of the present judgement.

    Attributes:
        act: See `NONE` and the others.
        answers: How often the program answered.
        place: Of the case that is judged; negative where there are none.
        passed: Cases that were passed before it.
        cases: How many there are.
    """

    __slots__ = ("_page",)

    act: int
    answers: int
    place: int
    passed: int
    cases: int
    _page: Any

    def __init__(self, page: Any = None) -> None:
        object.__setattr__(self, "_page", bytearray(SIZE) if page is None else page)

    def __getattr__(self, name: str) -> int:
        found: int = _NUMBER.unpack_from(self._page, _FIELDS[name])[0]
        return found

    def __setattr__(self, name: str, value: int) -> None:
        _NUMBER.pack_into(self._page, _FIELDS[name], value)

    def begin(self) -> None:
        """A judgement begins, of which nothing is known."""
        self._page[:SIZE] = bytes(SIZE)
        self.place = -1
        self._resume()

    def case(self, place: int, passed: int, cases: int) -> None:
        """A case begins."""
        self.place, self.passed, self.cases = place, passed, cases

    @contextmanager
    def during(self, act: int) -> Iterator[None]:
        """It does this, and then what it did before."""
        before, self.act = self.act, act
        try:
            yield
        finally:
            self.act = before

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """It waits for a program, whose time is bounded elsewhere."""
        self._pause()
        try:
            yield
        finally:
            self._resume()

    def answered(self) -> None:
        """The program answered: what it gave is looked at from now on."""
        self.answers += 1

    def used(self) -> float:
        """Seconds that it took beside waiting for programs."""
        (since,) = _TIME.unpack_from(self._page, _SINCE)
        (used,) = _TIME.unpack_from(self._page, _USED)
        return float(used) + (time.monotonic() - since if since else 0.0)

    @property
    def waits(self) -> bool:
        """It waits for a program now."""
        (since,) = _TIME.unpack_from(self._page, _SINCE)
        return not since

    def _pause(self) -> None:
        used = self.used()
        _TIME.pack_into(self._page, _SINCE, 0.0)
        _TIME.pack_into(self._page, _USED, used)

    def _resume(self) -> None:
        _TIME.pack_into(self._page, _SINCE, time.monotonic())
