"""Which columns of a batch a journal keeps.

A chosen column that a batch lacks stays empty there; that is said once.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from guerdon._batch.columns import COMPLETION_IDS, COMPLETIONS, PROMPTS, Data
from guerdon.errors import GuerdonWarning

if TYPE_CHECKING:
    from guerdon._insight.journal.options import Journal

__all__ = ["KeptColumns"]


class KeptColumns:
    """The columns that one dispatcher's journal keeps of its batches."""

    def __init__(self, journal: Journal) -> None:
        texts = [("own", PROMPTS), ("own", COMPLETIONS)] if journal.texts else []
        own = {COMPLETION_IDS: "own"}
        self._sources = [*texts, *((own.get(name, "dataset"), name) for name in journal.columns)]
        self._chosen = frozenset(journal.columns)
        self._missed: set[str] = set()  # those that were warned of

    def of(self, data: Data) -> list[tuple[str, str] | None]:
        """Where each of them comes from in this batch; None for one that it lacks."""
        found = [
            source if source[1] in (data.own if source[0] == "own" else data.dataset) else None
            for source in self._sources
        ]
        missing = [name for (_, name), has in zip(self._sources, found, strict=True) if has is None]
        new = [name for name in missing if name in self._chosen and name not in self._missed]
        if new:
            self._missed.update(new)
            warnings.warn(
                f"the journal is to keep the columns {', '.join(map(repr, new))}, which this batch does not have "
                f"(it has {', '.join(data.names())}): they stay empty in its rows.",
                GuerdonWarning,
                stacklevel=6,
            )
        return found
