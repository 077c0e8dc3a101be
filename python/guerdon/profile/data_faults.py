"""Rows that keep a reward that comes with Guerdon from being checked: rows that it can't read, and
packages that are not there.

Checks of such a function would describe these faults, as if they were the function's.
"""

from __future__ import annotations

from collections.abc import Iterable

from guerdon._functions.factory import Factory
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError
from guerdon.profile.finding import Example, Finding, excerpt, first_line
from guerdon.profile.measurement import Measurement
from guerdon.profile.samples import exception_of
from guerdon.results.status import Status

__all__ = ["data_faults", "refuse_missing_packages"]


def data_faults(spec: FunctionSpec, found: Measurement, rows: int) -> Finding | None:
    """The rows whose columns are at fault, as a finding; None if there are none, or if the function
    is not one that comes with Guerdon."""
    factory = spec.factory
    if factory is None:
        return None
    faults = [
        (case, score)
        for case, score in found.failures
        if score.status is Status.ERROR
        and (exception_of(score.reason) == "DataError" or score.reason.startswith("column '"))
    ]
    if not faults:
        return None
    first, why = faults[0]
    others = "" if len(faults) == 1 else f" {len(faults)} of {rows} rows are at fault."
    return Finding(
        "data",
        "error",
        f"row {first.row}: mend {_columns(factory)}: {_reason(why.reason)}.{others} Nothing else was checked.",
        tuple(
            Example(case.row, excerpt(case.completion), {"status": score.status.label}, _reason(score.reason))
            for case, score in faults
        ),
    )


def _columns(factory: Factory) -> str:
    names = ", ".join(map(repr, dict.fromkeys(factory.columns.values())))
    several = len(set(factory.columns.values())) > 1
    return f"the column{'s' if several else ''} {names}" if names else "its columns"


def _reason(reason: str) -> str:
    return first_line(reason).removeprefix("DataError: ")[:300]


def refuse_missing_packages(specs: Iterable[FunctionSpec]) -> None:
    """Refuse functions that can't do all of their work here.

    Raises:
        RegistrationError: With the package, and how to install it.
    """
    for spec in specs:
        why = None if spec.factory is None else spec.factory.missing()
        if why is not None:
            raise RegistrationError(f"reward function {spec.name!r} can't be profiled: {why}")
