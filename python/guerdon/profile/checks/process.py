"""Another process, with another hash seed, gives the same scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import SEEDS, baseline, in_batches, in_reverse
from guerdon.profile.checks.compare import differences
from guerdon.profile.finding import Finding
from guerdon.profile.subject import SEED, Score, Subject

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    if not runs.steady or subject.own_lane:
        return
    for seed, scores in zip(SEEDS, (in_reverse(subject), in_batches(subject)), strict=True):
        if all(map(Score.same, runs.first, scores)):
            continue
        same = subject.score(runs.samples, seed=seed, workers=1, fresh=True, group=subject.group_size)
        examples = differences(runs.samples, runs.first, same, ("one process", "another"))
        if examples:
            yield Finding(
                "process",
                "error",
                f"{subject.name!r} scores {len(examples)} of {len(runs.samples)} samples differently in another process "
                f"(PYTHONHASHSEED={seed} for {SEED}). Workers and ranks would disagree: sort sets before they are walked, use "
                "hashlib for hash(), and read nothing from the process (its id, its time zone, its memory).",
                tuple(examples),
            )
            return


CHECK: Final = Check("process", "Does another process, with another hash seed, give the same scores?", _run)
