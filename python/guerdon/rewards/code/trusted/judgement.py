"""The judgement on one program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from guerdon.rewards.code.trusted.compare import printable

__all__ = ["Judgement", "Score", "of_cases"]

Score = Literal["all", "share"]

_MOST_REASONS: Final = 5


@dataclass(frozen=True)
class Judgement:
    """The score of a program, and why.

    Attributes:
        score: 1 where it is right, or the share of its cases.
        passed: Cases that it passed.
        cases: How many there are.
        reason: Why it is not 1; "" where it is.
    """

    score: float
    passed: int = 0
    cases: int = 0
    reason: str = ""

    def fields(self) -> dict[str, Any]:
        """Returns the form of a reward function's result."""
        return {"score": self.score, "passed": self.passed, "cases": self.cases, "reason": printable(self.reason)}


def of_cases(faults: list[str], cases: int, score: Score) -> Judgement:
    """The judgement on a program's cases."""
    passed = sum(not fault for fault in faults)
    failed = [f"case {place}: {fault}" for place, fault in enumerate(faults) if fault]
    more = f"; and {len(failed) - _MOST_REASONS} more" if len(failed) > _MOST_REASONS else ""
    value = float(passed == cases) if score == "all" else passed / cases
    return Judgement(value, passed, cases, "; ".join(failed[:_MOST_REASONS]) + more)
