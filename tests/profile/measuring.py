"""Measuring a function as a profile does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from guerdon.profile import Subject, measurement
from guerdon.profile.measurement import Measurement, measure


@pytest.fixture(autouse=True, scope="module")
def few_repeats() -> Iterator[None]:
    """Short calls are watched a few times, not two thousand, where no test is about their CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurement, "_MOST_REPEATS", 16)
        yield


def measured(function: object, rows: Sequence[Mapping[str, Any]], **options: Any) -> Measurement:
    """The measurement of a function on the completions of the rows."""
    limits = {"memory_limit": 2_000_000_000, "max_output": 100_000, **options}
    with Subject(function, rows, **limits) as subject:
        return measure(subject, subject.samples())
