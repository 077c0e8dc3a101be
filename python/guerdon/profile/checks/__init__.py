"""The checks, in the order in which they run: `CHECKS`."""

from __future__ import annotations

from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks import (
    format,
    missing_reference,
    reference,
    rejects,
    sensitivity,
    stability,
    survival,
    values,
)

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check, ...]] = (
    reference.CHECK,
    missing_reference.CHECK,
    rejects.CHECK,
    format.CHECK,
    *stability.CHECKS,
    sensitivity.CHECK,
    values.CHECK,
    survival.CHECK,
)
