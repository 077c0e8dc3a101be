"""The signal that interrupts a call: it raises an exception in user code, and only there.

- It raises at most once for a claim, and only while that claim is current: a late signal does
  nothing.
- It does not raise while the worker reports (`shielded`): a message is sent whole.
- It is SIGURG: ignored by default, so a late one kills nothing, and unused by libraries; SIGALRM
  and the others stay the user's.
"""

from __future__ import annotations

import signal
from types import FrameType

from .shared_page import FIRE, PROGRESS


class CallInterrupted(BaseException):
    """The current call used up its timeout or its ``max_output``, or was cancelled.

    A BaseException: ``except Exception`` in user code doesn't catch it.
    """


class TimeoutSignal:
    """The handler of the signal."""

    __slots__ = ("_commands", "_words", "fired", "shielded")

    def __init__(self, words: memoryview, commands: memoryview) -> None:
        self._words = words
        self._commands = commands
        # Written by the worker around its reports.
        self.shielded = False
        # The last claim that the exception was raised for. Written by the handler.
        self.fired = 0

    def install(self) -> None:
        signal.signal(signal.SIGURG, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.shielded:
            return
        claim = self._commands[FIRE]
        if claim and claim != self.fired and claim == self._words[PROGRESS]:
            self.fired = claim
            raise CallInterrupted("interrupted by guerdon: timeout, max_output or cancelled")
