"""Scoring by one judge, whatever its server does."""

from __future__ import annotations

from typing import Any

import numpy as np

from guerdon import Dispatcher, judge
from guerdon.results import Failure, RewardBatch


def score(url: str, completions: list[str], **options: Any) -> RewardBatch:
    options = {"timeout": 20, "retries": 1, "name": "judge", **options}
    with Dispatcher(
        [judge(base_url=url, model="m", prompt="{completion}", **options)], max_failure_rate=1.0
    ) as dispatcher:
        return dispatcher.score(completions=completions)


def only(result: RewardBatch) -> Failure:
    """The failure of the one sample."""
    (failure,) = result.failures()
    assert np.isnan(result.rewards).all()
    return failure
