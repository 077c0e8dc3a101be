"""Selects the columns of a batch that a journal keeps.

A chosen column that a batch lacks stays empty there; it is reported once.
"""

from __future__ import annotations

from collections.abc import Sequence

from guerdon._batch.columns import COMPLETION_IDS, COMPLETIONS, PROMPTS, Data
from guerdon._system.warning import warn

__all__ = ["KeptColumns"]


class KeptColumns:
    """The columns that one dispatcher's journal keeps of its batches.

    Args:
        texts: Prompts and completions are kept.
        columns: The others that are.
    """

    def __init__(self, *, texts: bool, columns: Sequence[str]) -> None:
        own = {COMPLETION_IDS: "own"}
        kept = [("own", PROMPTS), ("own", COMPLETIONS)] if texts else []
        self._sources = [*kept, *((own.get(name, "dataset"), name) for name in columns)]
        self._chosen = frozenset(columns)
        self._missed: set[str] = set()  # those that were warned of

    def of(self, data: Data) -> list[tuple[str, str] | None]:
        """Returns the source of each of them in this batch; None for one that it lacks."""
        found = [
            source if source[1] in (data.own if source[0] == "own" else data.dataset) else None
            for source in self._sources
        ]
        missing = [name for (_, name), has in zip(self._sources, found, strict=True) if has is None]
        new = [name for name in missing if name in self._chosen and name not in self._missed]
        if new:
            self._missed.update(new)
            warn(
                f"the journal is to keep the columns {', '.join(map(repr, new))}, which this batch does not have "
                f"(it has {', '.join(data.names())}): they stay empty in its rows."
            )
        return found
