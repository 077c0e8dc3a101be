"""Other samples in the same batch, or none, leave each sample's score as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import SMALL, baseline, batched, in_batches
from guerdon.profile.checks.compare import differences
from guerdon.profile.finding import Finding
from guerdon.profile.subject import SEED, Score, Subject

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    if not runs.steady or len(runs.samples) < 2:
        return
    size = subject.group_size if subject.group_size > 1 else SMALL
    scores = in_batches(subject)
    if not all(map(Score.same, runs.first, scores)):
        scores = batched(subject, SEED)  # the batches alone
    examples = differences(runs.samples, runs.first, scores, ("all together", f"in batches of {size}"))
    if examples:
        yield Finding(
            "batch",
            "error",
            f"{subject.name!r} scores {len(examples)} of {len(runs.samples)} samples differently in batches of {size}. "
            + (
                "A score must depend on its own row alone: look for means and ranks over the batch, and for lists that are "
                "not aligned. If it is meant to compare the completions of a prompt, make it a @group_reward."
                if subject.batch
                else "A score must depend on its own row alone: look for state that a call leaves to the next."
            ),
            tuple(examples),
        )


CHECK: Final = Check("batch", "Does a sample's score stay when other samples stand in its batch?", _run)
