"""Faults that a measurement shows: blocking, growth, processes left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon._functions.spec import FunctionSpec
from guerdon.profile.finding import Finding
from guerdon.profile.measured import AT_ONCE
from guerdon.profile.measurement import Measurement

__all__ = ["measurement_findings"]

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
