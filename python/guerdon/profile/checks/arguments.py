"""The function leaves what it is given as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import baseline
from guerdon.profile.checks.threads import ended
from guerdon.profile.finding import Example, Finding, excerpt
from guerdon.profile.inspection import inspect_function, padded
from guerdon.profile.subject import Subject

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    cases = ended(runs.samples, runs.first)
    changed = inspect_function(subject, cases).get("arguments", [])
    examples = [
        Example(case.row, excerpt(case.completion), {"changed": "yes"})
        for case, score in zip([*cases, *padded(subject, cases)], changed, strict=False)
        if score.value == 1.0
    ]
    if examples:
        yield Finding(
            "arguments",
            "error",
            f"{subject.name!r} changes the lists or messages that it is given, on {len(examples)} of {len(cases)} samples. In a "
            "trainer's process the other functions, and the trainer, see the changed ones: copy first (list(…), dict(…)).",
            tuple(examples),
        )


CHECK: Final = Check("arguments", "Does it leave its arguments unchanged?", _run)
