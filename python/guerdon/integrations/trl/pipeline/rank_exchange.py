"""Groups that span several ranks, scored whole on the rank of their first row.

TRL gives each rank the next rows of the batch, whole groups or not. All ranks show each other their
rows, and the rank with a group's first row scores the group. They do so at the same two points:
before the rewards begin and after the last has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from accelerate.utils import gather_object
from numpy.typing import NDArray


class RankExchange:
    """The `rows` rows of this rank, and those of the groups of `size` rows that begin on it."""

    def __init__(self, rank: int, ranks: int, rows: int, size: int) -> None:
        self._own = slice(rank * rows, (rank + 1) * rows)
        # This rank scores the rows from the first group that begins on it to the first that begins
        # behind it: none where no group begins on it.
        first, last = (-(-row // size) * size for row in (self._own.start, self._own.stop))
        self._scored = slice(first, min(last, ranks * rows))
        self.scored = self._scored.stop - first  # rows that this rank scores

    def columns(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Returns the columns of the rows that this rank scores, from the columns of its rows.
        Collective."""
        every = gather_object([dict(columns)])
        return {name: [value for one in every for value in one[name]][self._scored] for name in columns}

    def values(self, scored: NDArray[Any]) -> NDArray[Any]:
        """The values of this rank's own rows, from those of the rows that it scored. Collective."""
        # The scored rows of all ranks, in the order of ranks, are all rows.
        return np.concatenate(gather_object([scored]))[self._own]
