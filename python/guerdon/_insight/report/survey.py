"""The first pass over a journal: its functions, runs, steps and values.

- It decides the axis (steps, or batches where no row has a step), its buckets, and the bins of
  each function's histogram; the second pass only counts.
- A function with at most `MOST_VALUES` different rewards gets a bin for each.
- Memory is bounded: distinct steps and sampled rewards are thinned out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._insight.journal.parts import JournalParts
from guerdon._insight.journal.selection import SeenRows, Selection
from guerdon._insight.report.rows import NAMES, NO_STEP, Floats, Integers, encoded, floats, integers
from guerdon.errors import DataError

__all__ = ["MOST_FUNCTIONS", "Axis", "FunctionSurvey", "JournalSurvey", "survey"]

MOST_FUNCTIONS: Final = 100
MOST_VALUES: Final = 24
BINS: Final = 30
_MOST_STEPS: Final = 1 << 20
_SAMPLED: Final = 1 << 14
_CELLS: Final = 1200  # buckets of all functions: what keeps the page small
_BUCKETS: Final = 120


@dataclass
class FunctionSurvey:
    """One function: its rewards' range, and some of them."""

    name: str
    rows: int = 0
    count: int = 0
    least: float = np.inf
    most: float = -np.inf
    values: Floats | None = field(default_factory=lambda: np.empty(0))
    sampled: Floats = field(default_factory=lambda: np.empty(0))
    stride: int = 1

    def add(self, rewards: Floats) -> None:
        self.rows += len(rewards)
        rewards = rewards[np.isfinite(rewards)]
        if not len(rewards):
            return
        self.count += len(rewards)
        self.least = min(self.least, float(rewards.min()))
        self.most = max(self.most, float(rewards.max()))
        if self.values is not None:
            distinct = np.union1d(self.values, np.unique(rewards))
            self.values = distinct if len(distinct) <= MOST_VALUES else None
        self.sampled = np.concatenate([self.sampled, rewards[:: self.stride]])
        while len(self.sampled) > _SAMPLED:
            self.sampled = self.sampled[::2]
            self.stride *= 2

    def edges(self) -> Floats | None:
        """The edges of the histogram's bins; None where each value has its own."""
        if self.values is not None:
            return None
        least, most = self.least, self.most
        low, high = np.quantile(self.sampled, [0.005, 0.995])
        if high > low and most - least > 4 * (high - low):  # outliers go into the outermost bins
            least, most = float(low), float(high)
        return np.linspace(least, most, BINS + 1)


@dataclass(frozen=True)
class Axis:
    """The horizontal axis: buckets of consecutive steps (or batches).

    Attributes:
        kind: ``"step"`` or ``"batch"``; batches are numbered from 0 in their order.
        first: The first step of each bucket; `last` the last.
    """

    kind: str
    first: Integers
    last: Integers

    def __len__(self) -> int:
        return len(self.first)

    def buckets(self, steps: Integers) -> Integers:
        """The bucket of each step; ``len(self)`` for rows without one."""
        place: Integers = np.clip(np.searchsorted(self.first, steps, side="right") - 1, 0, None)
        return np.where(steps == NO_STEP, len(self), place)


@dataclass(frozen=True)
class JournalSurvey:
    """Findings of the first pass over the rows that count."""

    selection: Selection
    rows: int
    runs: dict[str, int]
    functions: list[FunctionSurvey]
    left_out_functions: list[str]
    axis: Axis
    without_step: int
    batches: Integers

    @property
    def numbers(self) -> dict[str, int]:
        return {each.name: number for number, each in enumerate(self.functions)}


class _Steps:
    """Distinct steps; some of them if there are very many."""

    def __init__(self) -> None:
        self.seen: Integers = np.empty(0, np.int64)

    def add(self, steps: Integers) -> None:
        self.seen = np.union1d(self.seen, steps)
        while len(self.seen) > _MOST_STEPS:
            self.seen = np.append(self.seen[:-1:2], self.seen[-1])

    def numbered(self) -> _Steps:
        """The places of these steps among each other: numbers of batches mean nothing to people."""
        places = _Steps()
        places.seen = np.arange(len(self.seen))
        return places

    def axis(self, kind: str, most: int) -> Axis:
        width = max(1, -(-len(self.seen) // most))
        first = self.seen[::width]
        last = np.append(self.seen[width - 1 :: width][: len(first) - 1], self.seen[-1])
        return Axis(kind, first, last)


def survey(journal: JournalParts, selection: Selection) -> JournalSurvey:
    """Read what the second pass must know.

    Raises:
        DataError: There are no rows, or none of the selection.
    """
    seen = SeenRows()
    functions: dict[str, FunctionSurvey] = {}
    steps, batches, without, total = _Steps(), _Steps(), 0, 0
    for part in journal.parts:
        for _, whole in part.batches(["run", "function", "step", "batch", "reward"], dictionaries=NAMES):
            seen.add(whole)
            batch = selection.rows(whole)
            if not batch.num_rows:
                continue
            total += batch.num_rows
            _add_functions(functions, batch)
            known = integers(batch, "step", NO_STEP)
            without += int((known == NO_STEP).sum())
            steps.add(np.unique(known[known != NO_STEP]))
            if not len(steps.seen):  # as long as no row has a step
                batches.add(np.unique(integers(batch, "batch")))
    _check(journal, seen, selection, total)
    if not functions:
        raise DataError(f"the journal {journal.folder!r} has rows, but none of them names its function.")
    by_rows = sorted(functions.values(), key=lambda each: -each.rows)
    kept = {each.name for each in by_rows[:MOST_FUNCTIONS]}
    shown = [each for each in functions.values() if each.name in kept]
    most = max(10, min(_BUCKETS, _CELLS // len(shown)))
    chosen = selection.runs
    return JournalSurvey(
        selection=selection,
        rows=total,
        runs={name: count for name, count in seen.runs.items() if chosen is None or name in chosen},
        functions=shown,
        left_out_functions=[name for name in functions if name not in kept],
        axis=steps.axis("step", most) if len(steps.seen) else batches.numbered().axis("batch", most),
        without_step=without if len(steps.seen) else 0,
        batches=batches.seen,
    )


def _add_functions(functions: dict[str, FunctionSurvey], batch: Any) -> None:
    names, of = encoded(batch, "function")
    rewards = floats(batch, "reward")
    for number, name in enumerate(names):
        mine = rewards[of == number]
        if name is not None and len(mine):
            if name not in functions:
                functions[name] = FunctionSurvey(name)
            functions[name].add(mine)


def _check(journal: JournalParts, seen: SeenRows, selection: Selection, total: int) -> None:
    for name in selection.runs or () if seen.runs else ():
        if name not in seen.runs:
            some = ", ".join(repr(each) for each in list(seen.runs)[:10])
            raise DataError(f"the journal {journal.folder!r} has no run {name!r}. Its runs: {some}.")
    if total:
        return
    if not seen.runs:
        raise DataError(
            f"the journal {journal.folder!r} has no rows yet: {len(journal.parts)} part(s), all empty."
            f"{journal.described_notes()} A row is written when all samples of its group are scored."
        )
    if selection.of_steps and seen.steps is None:
        raise DataError(
            f"no row of the journal {journal.folder!r} has a step, so none can be chosen: trainers give one, elsewhere "
            'trainer_state={"global_step": step} does.'
        )
    there = "" if seen.steps is None else f" The journal's steps: {seen.steps[0]} to {seen.steps[1]}."
    chosen = f"{selection.steps_text()} and " if selection.of_steps else ""
    raise DataError(f"no row of the journal {journal.folder!r} is of the chosen {chosen}runs.{there}")
