"""Two passes over a journal: the contents, then the counts.

Memory is bounded by functions and buckets, beside one record batch and the rows of a batch of
samples. A journal that is being written is read as far as it goes; rows that come between the
passes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from guerdon._insight.journal.parts import JournalParts
from guerdon._insight.journal.schema import COLUMNS
from guerdon._insight.journal.selection import Selection
from guerdon._insight.report.failures import Failures
from guerdon._insight.report.groups import GroupSpread
from guerdon._insight.report.restarts import Restarts
from guerdon._insight.report.rows import NAMES, NO_STEP, STATUSES, Rows, codes, floats, integers, writer_of
from guerdon._insight.report.slowest import Examples, Slowest
from guerdon._insight.report.survey import JournalSurvey, survey
from guerdon._insight.report.tally import Tally
from guerdon.errors import DataError

__all__ = ["Summary", "summarise"]

_COLUMNS: Final = tuple(name for name in COLUMNS if name != "answer")
_FIXED: Final = {label: number for number, label in enumerate(STATUSES)}


@dataclass(frozen=True)
class Summary:
    """The contents of a report; each field is described in its own module."""

    journal: JournalParts
    survey: JournalSurvey
    tally: Tally
    groups: GroupSpread
    failures: Failures
    slowest: Slowest
    restarts: Restarts
    examples: Examples | None

    @property
    def names(self) -> list[str]:
        """The functions, in the order of their numbers."""
        return [each.name for each in self.survey.functions]


def summarise(
    journal: JournalParts,
    *,
    selection: Selection | None = None,
    texts: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Read the journal and count.

    Args:
        selection: Which rows count; all by default.
        texts: Whether rows are chosen for their texts.
        progress: Called with the rows that were counted and their number.

    Raises:
        DataError: There are no rows, none of the selection, or none that can be read.
    """
    journal.check_some()
    known = survey(journal, selection or Selection())
    tally = Tally(known)
    summary = Summary(
        journal,
        known,
        tally,
        GroupSpread(known),
        Failures(),
        Slowest(),
        Restarts(list(known.runs)),
        Examples(len(known.functions)) if texts else None,
    )
    done = 0
    for rows in _rows(journal, known):
        for each in (
            summary.tally,
            summary.failures,
            summary.slowest,
            summary.restarts,
            summary.groups,
            summary.examples,
        ):
            if each is not None:
                each.add(rows)
        done += len(rows)
        if progress is not None:
            progress(min(done, known.rows), known.rows)
    if not done:
        raise DataError(f"no row of the journal {journal.folder!r} can be read.{journal.described_notes()}")
    summary.groups.finish()
    return summary


def _rows(journal: JournalParts, known: JournalSurvey) -> Iterator[Rows]:
    import pyarrow as pa

    numbers, runs = known.numbers, {name: number for number, name in enumerate(known.runs)}
    writers = {name: number for number, name in enumerate(dict.fromkeys(part.writer for part in journal.parts))}
    for place, part in enumerate(journal.parts):
        for first, batch in part.batches(_COLUMNS, dictionaries=NAMES, among=known.selection.filter()):
            function = codes(batch, "function", numbers)
            keep = function >= 0
            mask = known.selection.mask(batch)
            if mask is not None:
                keep &= mask
            row = np.arange(first, first + batch.num_rows)
            if not keep.all():
                batch = batch.filter(pa.array(keep))
                function, row = function[keep], row[keep]
            if not len(function):
                continue
            step = integers(batch, "step", NO_STEP)
            if known.axis.kind != "step":
                step = np.searchsorted(known.batches, integers(batch, "batch")).astype(np.int64)
            run, rank = codes(batch, "run", runs), integers(batch, "rank")
            yield Rows(
                batch=batch,
                part=place,
                facts=part.facts,
                row=row,
                function=function,
                writer=writer_of(writers[part.writer], run, rank, len(known.runs)),
                batch_id=integers(batch, "batch"),
                group=integers(batch, "group"),
                sample=integers(batch, "sample"),
                step=step,
                bucket=known.axis.buckets(step),
                status=codes(batch, "status", _FIXED, len(STATUSES) - 1),
                reward=floats(batch, "reward"),
                weight=floats(batch, "weight"),
            )
