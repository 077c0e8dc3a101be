"""Faults that a measurement shows: blocking, growth, processes left behind; and rows that a reward
which comes with Guerdon can't read: its checks would describe their faults as if they were the
function's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon._functions.factory import Factory
from guerdon._functions.spec import FunctionSpec
from guerdon._system.units import plural
from guerdon.profile.finding import Example, Finding, excerpt, first_line
from guerdon.profile.measured import AT_ONCE
from guerdon.profile.measurement import Measurement
from guerdon.profile.samples import exception_of
from guerdon.results.status import Status

__all__ = ["data_faults", "measurement_findings"]

_LEAK: Final = 20_000_000
_LARGE: Final = 500_000_000
_STEEP: Final = 8.0
_SLOW_S: Final = 0.05
_BLOCKS_S: Final = 0.05


def measurement_findings(spec: FunctionSpec, found: Measurement) -> Iterator[Finding]:
    """Yields the findings of one function's calls; those that failed are for `checks.survival`."""
    yield from _long(found)
    if spec.is_async and found.cpu_s is not None and found.seconds and spec.lane == "asyncio":
        blocked = max(found.seconds) * min(1.0, found.cpu_s)
        computes = found.cpu_s > 0.5 and blocked > _BLOCKS_S
        if found.blocks or computes:
            how = f"it computes for {min(found.cpu_s, 1):.0%} of its time, up to {blocked:.2g} s in a call"
            if found.blocks:
                how = f"{AT_ONCE} calls at once took as long as one after another"
            waits = not computes and found.cpu_s < 0.2
            do = (
                'Await what it waits for (asyncio.sleep, an async client), or make it a plain def with lane="thread".'
                if waits
                else 'Make it a plain def: with lane="process" such calls run side by side in workers.'
            )
            yield Finding("blocking", "warning", f"It blocks its event loop: {how}. {do}")
    if found.forked:
        yield Finding(
            "processes",
            "error",
            "A call returned twice: it forks, and the copy of the worker goes on. End the child with os._exit, or use subprocess.",
        )
    elif found.processes_left:
        yield Finding(
            "processes",
            "warning",
            f"A call left {plural(found.processes_left, 'process', 'processes')} running. Wait for them, or end them.",
        )
    if found.added_bytes > _LEAK:
        yield Finding(
            "memory",
            "warning",
            f"Its worker grew by {found.added_bytes / 1e6:.0f} MB while the same rows were scored: it keeps something of each call. "
            "Clear it, or have workers replaced: Dispatcher(recycle=…).",
        )
    own = found.worker_bytes - found.empty_bytes
    if own > _LARGE:
        yield Finding(
            "memory",
            "info",
            f"A worker with it takes {own / 1e9:.1f} GB more than an empty one, and there is one a core.",
        )


def _long(found: Measurement) -> Iterator[Finding]:
    for place, (characters, seconds) in enumerate(found.long):
        if seconds is None:
            yield Finding(
                "long",
                "error",
                f"It does not end in time on a completion of {characters:,} characters (a row of the data with text before it). A policy "
                "can write such a completion. Look for a regular expression that backtracks, or cut the text first.",
            )
            return
        before = found.long[place - 1][1] if place else None
        if before and seconds > _SLOW_S and seconds / before > _STEEP:
            shorter = found.long[place - 1][0]
            yield Finding(
                "long",
                "warning",
                f"Its time grows faster than the text: {shorter:,} characters take {before:.2g} s, {characters:,} take {seconds:.2g} s.",
            )
            return


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
