"""A subject whose calls may take only so much memory, output and time together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from guerdon.errors import GuerdonError
from guerdon.profile.measurement import Budget
from guerdon.profile.subject import Case, Row, Score, Subject
from guerdon.results.status import Status

__all__ = ["LimitedSubject", "OutOfTime"]


class OutOfTime(GuerdonError):
    """The time of a profile is spent."""


class LimitedSubject(Subject):
    """A `Subject` within a budget; a check that goes beyond its deadline ends with `OutOfTime`."""

    def __init__(self, function: object, rows: Sequence[Row], budget: Budget, **options: Any) -> None:
        super().__init__(function, rows, memory_limit=budget.memory_limit, max_output=budget.max_output, **options)
        self.deadline = budget.deadline

    def _scored(self, *arguments: Any, **options: Any) -> list[Score]:
        scores = super()._scored(*arguments, **options)
        if any(score.status is Status.TIMEOUT and (score.reason or "").startswith("batch timeout") for score in scores):
            raise OutOfTime("the time of the profile is spent")
        return scores

    def columns_of(self, samples: Sequence[Case]) -> dict[str, Any]:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime("the time of the profile is spent")
        return {**super().columns_of(samples), "batch_timeout": min(left, 1e6)}
