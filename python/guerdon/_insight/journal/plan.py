"""Settings of a dispatcher's journal for the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from guerdon._functions.spec import FunctionSpec
from guerdon._insight.journal.schema import dispatcher_text
from guerdon._insight.journal.versions import source_version
from guerdon._system.launcher import rank

if TYPE_CHECKING:
    from guerdon._insight.journal.options import Journal

__all__ = ["JournalConfig", "JournalPlan"]


class JournalConfig(TypedDict):
    """Settings of a journal for the engine."""

    folder: bytes
    run: str
    rank: int
    functions: Sequence[Mapping[str, str | float]]
    """Name, version and weight of each."""
    texts: Sequence[str]
    """Its columns of texts: ``prompt``, ``completion``, ``column_…``."""
    dispatcher: str
    """A JSON object for the metadata of each part."""
    rotate: int
    """Bytes of a part at which the next one begins."""


@dataclass(frozen=True)
class JournalPlan:
    """A dispatcher's journal, the weights of its functions, its option ``incomplete`` and its
    number of workers."""

    journal: Journal
    weights: Sequence[float]
    incomplete: str
    workers: int

    def config(self, specs: Sequence[FunctionSpec]) -> JournalConfig:
        """Returns the settings for the engine of these functions, in this process."""
        journal = self.journal
        texts = ["prompt", "completion"] if journal.texts else []
        pairs = zip(specs, self.weights, strict=True)
        assert isinstance(journal.rotate, int)
        assert journal.run is not None
        return JournalConfig(
            folder=os.fsencode(journal.folder),
            run=journal.run,
            rank=rank(),
            functions=[
                {"name": spec.name, "version": source_version(spec), "weight": weight} for spec, weight in pairs
            ],
            texts=[*texts, *(f"column_{name}" for name in journal.columns)],
            dispatcher=dispatcher_text(
                self.incomplete,
                {spec.name: spec.lane for spec in specs if spec.member_of is None},
                self.workers,
                [spec.name for spec in specs if spec.can_fall_back],
            ),
            rotate=journal.rotate,
        )
