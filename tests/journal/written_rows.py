"""The rows of a journal, and how they must fit a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import RewardBatch, read_journal


def rows_of(folder: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_journal(folder, **options).to_pylist()
    return sorted(rows, key=lambda row: (row["batch"], row["sample"], row["function"]))


def matches(rows: list[dict[str, Any]], result: RewardBatch) -> None:
    """Each cell of the result is one row, which says what the result says."""
    names, (groups, size, functions) = list(result.functions), result.rewards.shape
    assert len(rows) == groups * size * functions
    for row in rows:
        group, place, function = row["group"], row["sample"] % size, names.index(row["function"])
        assert row["sample"] // size == group
        shown = float(result.rewards[group, place, function])
        assert row["reward"] == (None if np.isnan(shown) else shown), row
        assert row["attempts"] == result.attempts[group, place, function]
        assert row["run_s"] == pytest.approx(float(result.run_s[group, place, function]))
        assert row["queue_s"] == pytest.approx(float(result.queue_s[group, place, function]))
    reported = {(failure.function, failure.sample): failure for failure in result.failures()}
    for row in rows:
        failure = reported.get((row["function"], row["sample"]))
        assert (row["reason"], row["traceback"]) == (failure and failure.reason, failure and failure.traceback)
