"""Rows with the lowest and the highest reward of each function, the latest of each kind."""

from __future__ import annotations

from typing import Final

import numpy as np

from guerdon._insight.report.rows import Integers, Rows
from guerdon._insight.report.slowest import RowLocation

__all__ = ["Examples"]

_KEPT: Final = 3


class Examples:
    """A few rows of each function for people to read.

    Attributes:
        lowest: By function; so is `highest`.
    """

    def __init__(self, functions: int) -> None:
        self.lowest: list[list[RowLocation]] = [[] for _ in range(functions)]
        self.highest: list[list[RowLocation]] = [[] for _ in range(functions)]

    def add(self, rows: Rows) -> None:
        """Look through the rows."""
        known = np.isfinite(rows.reward)
        for function in range(len(self.lowest)):
            mine = np.flatnonzero(known & (rows.function == function))
            if len(mine):
                self._keep(self.lowest[function], rows, mine, 1)
                self._keep(self.highest[function], rows, mine, -1)

    def _keep(self, kept: list[RowLocation], rows: Rows, mine: Integers, sign: int) -> None:
        rewards = sign * rows.reward[mine]
        least = rewards.min()
        if len(kept) == _KEPT and least > max(sign * each.reward for each in kept):
            return
        chosen = mine[np.flatnonzero(rewards == least)[-_KEPT:]]
        kept += [RowLocation.of(rows, row) for row in chosen.tolist()]
        # The extreme first; among the same the latest, which are those of the trained model.
        kept.sort(key=lambda each: (sign * each.reward, -each.bucket, -each.row))
        del kept[_KEPT:]
