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
from guerdon.profile.measurement import Measurement, RowFailure, exception_of
from guerdon.profile.sample_rows import SampleRows

__all__ = ["data_faults", "refuse_missing_packages"]


def data_faults(spec: FunctionSpec, found: Measurement, rows: SampleRows) -> Finding | None:
    """The rows whose columns are at fault, as a finding; None if there are none, or if the function
    is not one that comes with Guerdon."""
    factory = spec.factory
    if factory is None:
        return None
    faults = [failure for failure in found.failures if _is_of_data(failure)]
    if not faults:
        return None
    first = faults[0]
    others = "" if len(faults) == 1 else f" {len(faults)} of {len(rows)} rows are at fault."
    return Finding(
        "data",
        "error",
        f"row {first.row}: mend {_columns(factory)}: {_reason(first)}.{others} Nothing else was checked.",
        tuple(
            Example(each.row, excerpt(rows.completions[each.row]), {"status": each.status}, _reason(each))
            for each in faults
        ),
    )


def _is_of_data(failure: RowFailure) -> bool:
    return failure.status == "error" and (
        exception_of(failure.reason) == "DataError" or failure.reason.startswith("column '")
    )


def _columns(factory: Factory) -> str:
    names = ", ".join(map(repr, dict.fromkeys(factory.columns.values())))
    several = len(set(factory.columns.values())) > 1
    return f"the column{'s' if several else ''} {names}" if names else "its columns"


def _reason(failure: RowFailure) -> str:
    return first_line(failure.reason).removeprefix("DataError: ")[:300]


def refuse_missing_packages(specs: Iterable[FunctionSpec]) -> None:
    """Refuse functions that can't do all of their work here.

    Raises:
        RegistrationError: With the package, and how to install it.
    """
    for spec in specs:
        why = None if spec.factory is None else spec.factory.missing()
        if why is not None:
            raise RegistrationError(f"reward function {spec.name!r} can't be profiled: {why}")
