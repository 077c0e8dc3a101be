"""Groups that span several ranks, scored whole on the rank of their first row.

TRL gives each rank the next rows of the batch, whole groups or not. The rank with a group's first
row takes the other rows from the ranks behind it, scores the group, and sends the values back. All
ranks exchange at the same two points: before the rewards begin and after the last has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from accelerate.utils import gather_object
from numpy.typing import NDArray


def foreign_rows(rank: int, rows: int, size: int) -> int:
    """Returns the number of a rank's first rows that belong to a group that begins on an earlier
    rank."""
    return min(rows, -rank * rows % size)


class RankExchange:
    """The rows of this rank, with those that it gives away and takes.

    Args:
        rank: This rank.
        ranks: How many there are.
        rows: Rows of each rank.
        size: Completions per prompt.
        arguments: By which dispatchers know the trainer.
    """

    def __init__(
        self, rank: int, ranks: int, rows: int, size: int, arguments: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.arguments = arguments
        self._rank = rank
        self._rows = rows
        self._size = size
        self._given = [foreign_rows(one, rows, size) for one in range(ranks)]
        end = (rank + 1) * rows
        # A rank without a row that begins a group scores nothing.
        self.taken = -end % size if self._given[rank] < rows else 0
        self.scored = rows - self._given[rank] + self.taken  # rows that this rank scores

    def columns(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Returns the columns of the rows that this rank scores, from the columns of its rows.
        Collective."""
        own = self._given[self._rank]
        away = [{name: values[row] for name, values in columns.items()} for row in range(own)]
        heads = gather_object([(self._rank, away)])
        taken = self._behind(dict(heads))
        return {name: [*values[own:], *(row[name] for row in taken)] for name, values in columns.items()}

    def values(self, scored: NDArray[Any]) -> NDArray[Any]:
        """The values of this rank's own rows, from those of the rows that it scored. Collective."""
        kept = self._rows - self._given[self._rank]
        sent = gather_object([(self._rank, scored[kept:])])
        # In the order of ranks, the taken rows are the given ones, row by row.
        taken = np.concatenate([rows for _, rows in sorted(sent, key=lambda one: int(one[0]))])
        first = sum(self._given[: self._rank])
        return np.concatenate([taken[first : first + self._given[self._rank]], scored[:kept]])

    def _behind(self, heads: Mapping[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The rows that complete this rank's last group."""
        rows: list[dict[str, Any]] = []
        rank = self._rank + 1
        while len(rows) < self.taken:
            rows.extend(heads[rank])
            rank += 1
        return rows[: self.taken]
