"""The same samples twice, in the same process, give the same scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import baseline
from guerdon.profile.checks.compare import differences
from guerdon.profile.finding import Finding
from guerdon.profile.subject import Subject

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    examples = differences(runs.samples, runs.first, runs.second, ("first", "second"))
    if examples:
        yield Finding(
            "repeat",
            "error",
            f"{subject.name!r} scores {len(examples)} of {len(runs.samples)} samples differently when asked again. Look for "
            "random numbers, the time, counters and caches between calls; seed what is random with the sample itself.",
            tuple(examples),
        )


CHECK: Final = Check("repeat", "Do the same samples get the same scores when they are scored again?", _run)
