"""The timeout exception: raised in user code by a signal of ours, and only there.

- E-1  The exception is raised at most once for a claim, and only while that claim is in hand: a late signal does
       nothing.
- E-2  It is not raised while the worker reports (`shielded`): a message leaves whole.
- E-3  SIGURG: ignored by default, so a late one kills nothing, and left alone by libraries; SIGALRM and the rest stay
       the user's.
"""

from __future__ import annotations

import signal
from types import FrameType

from .shared_page import FIRE, PROGRESS


class CallInterrupted(BaseException):
    """The call in hand has used up its timeout, or a fence. A BaseException: ``except Exception`` in user code doesn't swallow it."""


class TimeoutSignal:
    """The handler of the timeout signal."""

    __slots__ = ("_words", "fired", "shielded")

    def __init__(self, words: memoryview) -> None:
        self._words = words
        # Written by the worker around its reports.
        self.shielded = False
        # The last claim the exception was raised for. Written by the handler.
        self.fired = 0

    def install(self) -> None:
        signal.signal(signal.SIGURG, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.shielded:
            return
        claim = self._words[FIRE]
        if claim and claim != self.fired and claim == self._words[PROGRESS]:
            self.fired = claim
            raise CallInterrupted("the call was told to end")
