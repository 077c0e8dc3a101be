"""The runs that determinism and independence are compared with, each made once for a subject.

Three runs serve all comparisons, as each needs processes that have run nothing before: one in
order, one reversed, one in other batches, each with a hash seed of its own. Where two differ, the
check that asks repeats the run under the first seed, and so learns what made the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from guerdon.profile.calibration import material
from guerdon.profile.subject import SEED, Case, Score, Subject

__all__ = ["SEEDS", "SMALL", "Baseline", "baseline", "batched", "in_batches", "in_reverse", "reversed_order"]

SEEDS: Final = (SEED + 1, SEED + 2)
SMALL: Final = 3
"""Samples of the other batches, unless groups are larger."""


@dataclass(frozen=True)
class Baseline:
    """The same samples twice, one after the other, in a worker that had run nothing before."""

    samples: Sequence[Case]
    first: Sequence[Score]
    second: Sequence[Score]

    @property
    def steady(self) -> bool:
        """Whether both runs agree: else no other comparison says anything."""
        return all(map(Score.same, self.first, self.second))


def baseline(subject: Subject) -> Baseline:
    """The subject's baseline."""
    found = _baselines.get(subject)
    if found is None:
        samples = material(subject)
        size = len(samples)
        twice = subject.score([*samples, *samples], batch=size, workers=1, fresh=True, group=subject.group_size)
        found = _baselines[subject] = Baseline(samples, twice[:size], twice[size:])
    return found


def in_reverse(subject: Subject) -> list[Score]:
    """The scores of the baseline's samples in reverse order, under the second seed."""
    found = _reversed.get(subject)
    if found is None:
        found = _reversed[subject] = reversed_order(subject, SEEDS[0])
    return found


def in_batches(subject: Subject) -> list[Score]:
    """The scores of the baseline's samples in small batches, under the third seed."""
    found = _batched.get(subject)
    if found is None:
        found = _batched[subject] = batched(subject, SEEDS[1])
    return found


def reversed_order(subject: Subject, seed: int) -> list[Score]:
    """Groups stay whole."""
    samples, group = baseline(subject).samples, subject.group_size
    starts = range(0, len(samples), group)
    order = [place for start in reversed(starts) for place in range(start, min(start + group, len(samples)))]
    return _scored(subject, order, seed, None)


def batched(subject: Subject, seed: int) -> list[Score]:
    """The second half first, so that each sample has other neighbours and another past."""
    samples, group = baseline(subject).samples, subject.group_size
    middle = len(samples) // (2 * group) * group
    return _scored(subject, [*range(middle, len(samples)), *range(middle)], seed, group if group > 1 else SMALL)


def _scored(subject: Subject, order: Sequence[int], seed: int, batch: int | None) -> list[Score]:
    samples = [baseline(subject).samples[place] for place in order]
    scores = subject.score(samples, batch=batch, seed=seed, workers=1, fresh=True, group=subject.group_size)
    back = dict(zip(order, scores, strict=True))
    return [back[place] for place in range(len(order))]


_baselines: WeakKeyDictionary[Subject, Baseline] = WeakKeyDictionary()
_reversed: WeakKeyDictionary[Subject, list[Score]] = WeakKeyDictionary()
_batched: WeakKeyDictionary[Subject, list[Score]] = WeakKeyDictionary()
