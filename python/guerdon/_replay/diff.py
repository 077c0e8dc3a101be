"""The diff of a journal and what its rollouts score now, added up chunk by chunk.

- The total of a sample is that of all functions of the journal and of the replay: one that was not
  replayed keeps its former score. Weights are those given now, else the journal's.
- Ranks and advantages are of whole groups.
- The samples of each function that moved farthest are kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guerdon._batch.columns import plain_text
from guerdon._replay.chunks import ABSENT, Cells, Chunk
from guerdon._replay.compare import Comparison
from guerdon.errors import DataError
from guerdon.results.status import Status
from guerdon.results.totals import total, unscorable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guerdon._replay.scoring import Outcomes

__all__ = ["Diff"]

_LABELS: Final = [status.label for status in Status]
_EXCERPT: Final = 160
_REASON: Final = 300


class Diff:
    """Compares chunks.

    Args:
        weights: Of the functions that were given some now.
        incomplete: What becomes now of a sample on which a function failed, as in `Dispatcher`; of
            then the journal says it.
        tolerance: Numbers no farther apart agree.
        most_moved: How many moved samples of each function are kept.
    """

    def __init__(self, weights: Mapping[str, float], incomplete: str, tolerance: float, most_moved: int) -> None:
        self.functions: dict[str, Comparison] = {}
        self.total = Comparison(tolerance)
        self.tolerance = tolerance
        self._weights = weights
        self._incomplete = incomplete
        self._most = most_moved
        # Examples by function and whether both sides hold a number: distance, order of arrival,
        # excerpt.
        self._moved: dict[tuple[str, bool], list[tuple[float, int, dict[str, Any]]]] = {}
        self._counter = 0

    def add(self, chunk: Chunk, now: Mapping[str, Outcomes]) -> None:
        """Count a chunk.

        Args:
            now: Of each function that was called on it.
        """
        old_cells = chunk.cells
        for name, side in now.items():
            comparison = self.functions.setdefault(name, Comparison(self.tolerance))
            old = old_cells.get(name) or Cells.empty(len(chunk))
            apart = comparison.add(old.reward, side.reward, old.status, side.status)
            if chunk.whole:
                whole = np.repeat(old.there.reshape(-1, chunk.size).all(axis=1), chunk.size)
                comparison.add_groups(old.reward[whole], side.reward[whole], chunk.size)
            if self._most and apart.any():
                self._keep(name, chunk, old, side, np.flatnonzero(apart))
        if chunk.whole:
            self._add_total(chunk, old_cells, now)

    def moved(self) -> list[dict[str, Any]]:
        """The samples that moved most, function by function: numbers first, the farthest first."""
        found = []
        for name in self.functions:
            for numbers in (True, False):
                kept = sorted(self._moved.get((name, numbers), ()), key=lambda one: (-one[0], -one[1]))
                found += [entry for _, _, entry in kept]
        return found

    @property
    def differences(self) -> int:
        """Cells that moved."""
        return sum(each.moved for each in self.functions.values())

    def _add_total(self, chunk: Chunk, old_cells: Mapping[str, Cells], now: Mapping[str, Outcomes]) -> None:
        names = list(dict.fromkeys((*old_cells, *now)))
        size = len(chunk)
        rewards = np.full((2, size, len(names)), np.nan, np.float32)
        status = np.full((2, size, len(names)), ABSENT, np.uint8)
        weights = np.ones((2, size, len(names)), np.float32)
        for place, name in enumerate(names):
            old = old_cells.get(name) or Cells.empty(size)
            rewards[:, :, place], status[:, :, place] = old.reward, old.status
            known = np.where(np.isnan(old.weight), 1.0, old.weight)
            weights[0, :, place] = known
            weights[1, :, place] = self._weights.get(name, known)
            side = now.get(name)
            if side is not None:
                rewards[1, :, place], status[1, :, place] = side.reward, side.status
        then = [unscorable(rewards[0], status[0], incomplete) for incomplete in ("sum", "drop")]
        without = np.where(chunk.is_summed, *then), unscorable(rewards[1], status[1], self._incomplete)
        totals = [total(rewards[k], without[k], weights[k]) for k in range(2)]
        # A total is there or not: a sample that failed then counts as a failure.
        kinds = [np.where(np.isnan(each), np.uint8(Status.ERROR), np.uint8(Status.OK)) for each in totals]
        self.total.add(totals[0], totals[1], kinds[0], kinds[1])
        self.total.add_groups(totals[0], totals[1], chunk.size)

    def _keep(self, name: str, chunk: Chunk, old: Cells, side: Outcomes, places: NDArray[np.int64]) -> None:
        """Keep the farthest of these samples, and the first of those with a number on one side
        only."""
        with np.errstate(invalid="ignore"):
            change = np.abs(side.reward[places].astype(np.float64) - old.reward[places])
        for numbers in (True, False):
            mine = np.flatnonzero(~np.isnan(change) == numbers)
            far = np.where(numbers, change, 0.0)[mine]
            kept = self._moved.setdefault((name, numbers), [])
            for best in np.argsort(-far, kind="stable")[: self._most].tolist():
                if len(kept) == self._most and far[best] <= kept[0][0]:
                    break
                self._counter += 1
                entry = _entry(name, chunk, old, side, int(places[mine[best]]))
                heapq.heappush(kept, (float(far[best]), -self._counter, entry))
                if len(kept) > self._most:
                    heapq.heappop(kept)


def _entry(name: str, chunk: Chunk, old: Cells, side: Outcomes, sample: int) -> dict[str, Any]:
    row = int(chunk.first_rows[sample])
    keys = {key: chunk.table[key][row].as_py() for key in ("run", "step", "rank", "batch", "group", "sample")}
    reason = chunk.table["reason"][int(old.row[sample])].as_py() if old.row[sample] >= 0 else None
    before, after = _number(old.reward[sample]), _number(side.reward[sample])
    return {
        "function": name,
        **keys,
        "journal": {"reward": before, "status": _label(old.status[sample]), "reason": _cut(reason, _REASON)},
        "now": {
            "reward": after,
            "status": _label(side.status[sample]),
            "reason": _cut(side.reasons.get(sample), _REASON),
        },
        "change": None if before is None or after is None else after - before,
        "prompt": excerpt(chunk, "prompt", sample),
        "completion": excerpt(chunk, "completion", sample),
    }


def excerpt(chunk: Chunk, name: str, sample: int) -> str | None:
    """The beginning of a text; None if the journal, or the part that is read, has none."""
    if name not in chunk.table.schema.names or not chunk.has(name):
        return None
    (value,) = chunk.cut(np.array([sample])).values(name)
    if isinstance(value, Sequence) and not isinstance(value, str):
        last = value[-1] if value else ""
        if isinstance(last, Mapping) and last.get("role") != "assistant":
            value = [{**last, "role": "assistant"}]
    try:
        text = plain_text(value, sample)
    except DataError:
        text = str(value)
    return _cut(" ".join(text.split()), _EXCERPT)


def _cut(text: str | None, width: int) -> str | None:
    return text if text is None or len(text) <= width else text[: width - 1] + "…"


def _number(value: np.float32) -> float | None:
    return None if np.isnan(value) else float(value)


def _label(status: int) -> str | None:
    return None if status == ABSENT else _LABELS[status]
