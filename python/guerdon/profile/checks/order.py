"""Another order of the samples gives each of them the same score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import baseline, in_reverse, reversed_order
from guerdon.profile.checks.compare import differences
from guerdon.profile.finding import Finding
from guerdon.profile.subject import SEED, Score, Subject

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    if not runs.steady or len(runs.samples) < 2:
        return
    scores = in_reverse(subject)
    if not all(map(Score.same, runs.first, scores)):
        scores = reversed_order(subject, SEED)  # the order alone
    examples = differences(runs.samples, runs.first, scores, ("in order", "reversed"))
    if examples:
        what = "groups" if subject.group_size > 1 else "samples"
        yield Finding(
            "order",
            "error",
            f"{subject.name!r} scores {len(examples)} of {len(runs.samples)} samples differently when the {what} come in "
            "reverse order. A score must depend on its own row alone: look for state that a call leaves to the next (caches, "
            "running means), and for ranks or means over the batch.",
            tuple(examples),
        )


CHECK: Final = Check("order", "Does a sample's score stay when the samples come in another order?", _run)
