"""The checks, in the order in which they run: `CHECKS`."""

from __future__ import annotations

from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks import answers, stability, survival, values

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check, ...]] = (
    answers.REFERENCE,
    answers.MISSING_REFERENCE,
    answers.PROBES,
    answers.FORMAT,
    *stability.CHECKS,
    answers.SENSITIVITY,
    values.CHECK,
    survival.CHECK,
)
