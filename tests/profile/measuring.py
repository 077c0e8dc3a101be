"""Measuring a function as a profile does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon.profile import Subject
from guerdon.profile.measurement import Measurement, measure


def measured(function: object, rows: Sequence[Mapping[str, Any]], **options: Any) -> Measurement:
    """The measurement of a function on the completions of the rows."""
    limits = {"memory_limit": 2_000_000_000, "max_output": 100_000, **options}
    with Subject(function, rows, **limits) as subject:
        return measure(subject, subject.samples())
