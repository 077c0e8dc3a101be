"""Faults that a measurement shows: hangs, crashes, errors, floods, growth.

Rows are named as in the data, from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from guerdon._functions.spec import FunctionSpec
from guerdon.profile.finding import MOST_EXAMPLES, Example, Finding, excerpt, first_line, one_line
from guerdon.profile.measured import AT_ONCE
from guerdon.profile.measurement import Measurement, RowFailure
from guerdon.profile.sample_rows import SampleRows

__all__ = ["joined", "measurement_findings"]

_LEAK: Final = 20_000_000
_LARGE: Final = 500_000_000
_STEEP: Final = 8.0
_SLOW_S: Final = 0.05
_BLOCKS_S: Final = 0.05
# Names that the checks give to a measured row's failure, by the measurement's.
_TWICE: Final = {"hang": "hang", "crash": "crash", "fails": "exception"}


def measurement_findings(spec: FunctionSpec, found: Measurement, rows: SampleRows) -> Iterator[Finding]:
    """Yields the findings of one function's calls."""
    yield from _failures(found, rows)
    yield from _long(found)
    if spec.is_async and found.cpu_s is not None and found.seconds and spec.lane == "asyncio":
        blocked = max(found.seconds) * min(1.0, found.cpu_s)
        computes = found.cpu_s > 0.5 and blocked > _BLOCKS_S
        if found.blocks or computes:
            how = f"it computes for {min(found.cpu_s, 1):.0%} of its time, up to {blocked:.2g} s in a call"
            if found.blocks:
                how = f"{AT_ONCE} calls at once took as long as one after another"
            yield Finding(
                "blocking",
                "warning",
                f"It blocks its event loop: {how}. Await what it waits for (asyncio.sleep, an async client), or make it a plain "
                'def: with lane="process" such calls run side by side in workers.',
            )
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
            f"A call left {found.processes_left} process{'es' if found.processes_left > 1 else ''} running. Wait for them, or end them.",
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


def joined(findings: Iterable[Finding], others: Iterable[Finding]) -> list[Finding]:
    """Two lists as one, in which a row that hung, crashed or failed is shown once: as in `others`,
    which say what to do."""
    others = list(others)
    known = {(each.check, example.row) for each in others for example in each.examples}
    # It has no room for all of its rows.
    full = {each.check for each in others if len(each.examples) == MOST_EXAMPLES}
    kept = []
    for each in findings:
        check = _TWICE.get(each.check)
        examples = tuple(example for example in each.examples if (check, example.row) not in known)
        if len(examples) == len(each.examples):
            kept.append(each)
        elif examples and check not in full:
            kept.append(replace(each, examples=examples))
    return [*kept, *others]


def _failures(found: Measurement, rows: SampleRows) -> Iterator[Finding]:
    scored = len(found.seconds) + len(found.failures)
    by_kind: dict[tuple[str, str], list[RowFailure]] = {}
    for failure in found.failures:
        by_kind.setdefault(_kind(failure), []).append(failure)
    for (check, what), failures in by_kind.items():
        reason = first_line(failures[0].reason) or failures[0].status
        yield Finding(
            check,
            "warning" if check == "output" else "error",
            f"{what} on {len(failures)} of {scored} calls: {reason}",
            _examples(failures, rows),
        )


def _kind(failure: RowFailure) -> tuple[str, str]:
    """Id of the check and what happened."""
    if failure.status == "timeout":
        return "hang", "It did not end in time"
    if failure.lacks_memory:
        return "memory", "It wants more memory than it may have"
    if failure.status == "crashed":
        return "crash", "It ended its worker"
    if failure.is_flood:
        return "output", "It prints more than it may"
    return "fails", "It fails"


def _examples(failures: Iterable[RowFailure], rows: SampleRows) -> tuple[Example, ...]:
    return tuple(
        Example(
            failure.row, excerpt(rows.completions[failure.row]), {"status": failure.status}, one_line(failure.reason)
        )
        for failure in list(failures)[:5]
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
        before: Any = found.long[place - 1][1] if place else None
        if before and seconds > _SLOW_S and seconds / before > _STEEP:
            shorter = found.long[place - 1][0]
            yield Finding(
                "long",
                "warning",
                f"Its time grows faster than the text: {shorter:,} characters take {before:.2g} s, {characters:,} take {seconds:.2g} s.",
            )
            return
