"""The checks, in the order in which they run: `CHECKS`; all of them on one function: `audit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from guerdon.profile.checks import answers, stability, survival, values
from guerdon.profile.finding import Check, Finding
from guerdon.profile.subject import Row, Subject

__all__ = ["CHECKS", "audit"]

CHECKS: Final[tuple[Check, ...]] = (
    answers.REFERENCE,
    answers.MISSING_REFERENCE,
    answers.PROBES,
    answers.FORMAT,
    *stability.CHECKS,
    values.CHECK,
    survival.CHECK,
)


def audit(function: object, rows: Sequence[Row], *, checks: Iterable[Check] = CHECKS, **options: Any) -> list[Finding]:
    """Run checks on one function.

    Args:
        function: What stands in a dispatcher's list.
        rows: Mappings with ``prompt`` and the function's columns; see `Subject`.
        checks: Which. Default: all that have to do with correctness.
        options: As for `Subject`.

    Returns: The findings, in the order of the checks; the worst first is up to the caller.

    Raises:
        RegistrationError: It is not a reward function.
        DataError: There are no rows, or they lack a column that the function asks for.
    """
    with Subject(function, rows, **options) as subject:
        return [finding for check in checks for finding in check.run(subject)]
