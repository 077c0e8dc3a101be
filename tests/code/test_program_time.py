"""The clock of a program runs from a question to its answer."""

from __future__ import annotations

import time
from typing import Any

from tests.code.programs import judged, judgement

TIMEOUT = 0.5
LONG_S = 3 * TIMEOUT + 2
RIGHT = "def f(n):\n    return n + 1\n"


def _slow(candidate: Any) -> float:
    right = candidate(1) == 2
    time.sleep(LONG_S)
    return float(right and candidate(2) == 3)


def _many(candidate: Any) -> float:
    return float(all(candidate(n) == n + 1 for n in range(40)))


def test_a_right_program_scores_one_beside_a_check_that_takes_longer_than_it_may() -> None:
    with judged(check=_slow, timeout=TIMEOUT) as reward:
        assert judgement(reward, RIGHT, entry_point="f").score == 1.0


def test_a_program_that_sleeps_longer_than_it_may_scores_zero() -> None:
    with judged(check=_many, timeout=TIMEOUT) as reward:
        found = judgement(
            reward, f"import time\n{RIGHT.replace('return', f'time.sleep({LONG_S}); return')}", entry_point="f"
        )
    assert (found.score, "within" in found.reason or "time" in found.reason) == (0.0, True)


def test_a_program_that_sleeps_a_little_in_each_of_many_calls_scores_zero() -> None:
    with judged(check=_many, timeout=TIMEOUT) as reward:
        found = judgement(reward, f"import time\n{RIGHT.replace('return', 'time.sleep(0.1); return')}", entry_point="f")
    assert (found.score, "within" in found.reason or "time" in found.reason) == (0.0, True)
