"""The checks, in the order in which they run: `CHECKS`."""

from __future__ import annotations

from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks import (
    arguments,
    batch,
    clock,
    format,
    missing_reference,
    order,
    process,
    reference,
    rejects,
    repeat,
    sensitivity,
    survival,
    threads,
    values,
)

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check, ...]] = (
    reference.CHECK,
    missing_reference.CHECK,
    rejects.CHECK,
    format.CHECK,
    repeat.CHECK,
    order.CHECK,
    batch.CHECK,
    process.CHECK,
    threads.CHECK,
    clock.CHECK,
    arguments.CHECK,
    sensitivity.CHECK,
    values.CHECK,
    survival.CHECK,
)
