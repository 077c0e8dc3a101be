"""Plain calls of native rewards that take long: a timeout ends them, and so does a signal."""

from __future__ import annotations

import signal
import time
from types import FrameType

import pytest

from guerdon import rewards
from guerdon.errors import DataError
from tests.rewards.texts import SLOW


class _AlarmError(Exception):
    """Raised by the handler of the test."""


@pytest.mark.fault("a plain call of a native reward that takes minutes", sees="`DataError` at its timeout")
def test_a_plain_call_ends_at_its_timeout() -> None:
    text, answer = SLOW
    with pytest.raises(DataError, match=r"sample 1: no answer within the timeout of 0\.2 s"):
        rewards.edit_distance(timeout=0.2)(completions=["4", text], answer=["4", answer])


@pytest.mark.fault("Ctrl-C in a plain call of a native reward", sees="what the signal's handler raises, at once")
@pytest.mark.parametrize("samples", [1, 200_000])
def test_a_signal_is_answered_meanwhile(samples: int) -> None:
    """A signal comes in one long sample, or between many short ones, which never ask."""

    def alarmed(_signal: int, _frame: FrameType | None) -> None:
        raise _AlarmError

    text, answer = SLOW if samples == 1 else ("a b c " * 300, "b c d " * 300)
    slow = rewards.edit_distance(timeout=600) if samples == 1 else rewards.squad_f1(timeout=600)
    was = signal.signal(signal.SIGALRM, alarmed)
    try:
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(_AlarmError):
            slow(completions=[text] * samples, answer=[answer] * samples)
        assert time.monotonic() - started < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)
