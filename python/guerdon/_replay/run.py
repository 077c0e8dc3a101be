"""One replay: chunks of the journal through the functions, into OUT and the diff.

- Everything that can't work is refused before any call, and before anything is written.
- Chunks are written in the order of the journal. An early end of the replay loses the samples in
  flight.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from guerdon._insight.diagnostics.score_totals import ScoreTotals
from guerdon._insight.journal.parts import find_parts
from guerdon._insight.journal.selection import Selection
from guerdon._replay.chunks import Chunk, chunks
from guerdon._replay.diff import Diff
from guerdon._replay.needs import needs
from guerdon._replay.output import Output
from guerdon._replay.result import ReplayResult
from guerdon._replay.scoring import Scorer, SubmittedChunk
from guerdon._replay.survey import survey
from guerdon.dispatcher import Dispatcher
from guerdon.results.status import Status

__all__ = ["ReplayRun"]

_IN_FLIGHT: Final = 4096
"""Samples that are being scored at once, about."""
_EXAMPLES: Final = 5
_MOST_REASONS: Final = 5


class ReplayRun:
    """A replay that was planned and checked; the arguments are those of `guerdon.replay`.

    Args:
        dispatcher: With the functions; never used to score, so that it writes nothing.

    Raises:
        DataError: The journal, OUT or a choice can't be used.
        RegistrationError: The functions can't.
    """

    def __init__(
        self,
        journal: str | Path,
        dispatcher: Dispatcher,
        selection: Selection,
        *,
        out: str | Path | None = None,
        tolerance: float = 0.0,
        moved: int = 20,
        workers: int | None = None,
        chunk: int = 512,
    ) -> None:
        self._journal, self._dispatcher = journal, dispatcher
        self._moved, self._chunk = moved, chunk
        self.scorer = Scorer(dispatcher, workers)
        self.parts = find_parts(journal)
        self.survey = survey(self.parts, selection)
        self.needs = needs(self.scorer.specs, self.survey)
        given = dispatcher.options["weights"]
        weights = {} if given is None else dict(zip(dispatcher.names, dispatcher._builder.weights, strict=True))
        self.output = None if out is None else Output(out)
        self.diff = Diff(weights, dispatcher.options["incomplete"], tolerance, moved)
        self.totals = ScoreTotals([spec.name for spec in self.scorer.specs])
        self.left_out: Counter[str] = Counter()
        """Cells of groups that lack samples, by the function that is not called on them."""
        self.groups = self.incomplete_groups = self.repeated_rows = self.samples = 0
        self.incomplete: list[dict[str, Any]] = []

    def run(self, progress: Callable[[int], None] = lambda samples: None) -> ReplayResult:
        """Score, write and compare.

        Args:
            progress: Called with the number of samples that were done since the last time.
        """
        in_flight: deque[SubmittedChunk] = deque()
        waiting = 0
        try:
            for chunk in self._chunks():
                while in_flight and waiting + len(chunk) > _IN_FLIGHT:
                    finished = self._finish(in_flight)
                    waiting -= finished
                    progress(finished)
                in_flight.append(self.scorer.submit(chunk, self.needs))
                waiting += len(chunk)
            while in_flight:
                progress(self._finish(in_flight))
        finally:
            self.close()
        return self._result()

    def close(self) -> None:
        """End the functions' engines and complete the output."""
        self.scorer.close()
        if self.output is not None:
            self.output.close()
            self.output = None

    def _result(self) -> ReplayResult:
        functions = {}
        for row in self.totals.rows():
            name, comparison = row.name, self.diff.functions.get(row.name)
            reasons: Counter[str] = Counter()
            for why in self.totals.reasons(name):
                reasons[why.reason] += why.count
            functions[name] = {
                "scored": row.samples,
                "left_out": self.left_out[name],
                "status": {status.label: row.counts[status] for status in Status if row.counts[status]},
                "reasons": dict(reasons.most_common(_MOST_REASONS)),
                "usage": self.totals.used.get(name),
                "diff": comparison.to_dict() if comparison is not None and name in self.survey.functions else None,
            }
        return ReplayResult(
            journal=str(self._journal),
            rows=self.survey.rows,
            samples=self.samples,
            groups=self.groups,
            incomplete={"groups": self.incomplete_groups, "examples": self.incomplete},
            functions=functions,
            total=self.diff.total.to_dict(),
            moved=self.diff.moved(),
            tolerance=self.diff.tolerance,
            differences=self.diff.differences,
            failures=self.totals.breaches(self.scorer.specs, self._dispatcher.options["max_failure_rate"]),
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        """Returns notes for readers of the results, a sentence each."""
        notes = [*(f"{note}." for note in self.parts.notes), *self.needs.notes]
        if self.incomplete_groups:
            names = list(self.left_out)
            skipped = (
                f"; {', '.join(map(repr, names))} {'were' if len(names) > 1 else 'was'} not called on them"
                if names
                else ""
            )
            notes.append(
                f"{self.incomplete_groups} groups lack samples: they count for no rank, advantage or total{skipped}."
            )
        if self.repeated_rows:
            notes.append(f"{self.repeated_rows} rows of the journal repeat a cell: the first one of each counts.")
        kept = [name for name in self.survey.functions if name not in self.totals.functions]
        if kept:
            notes.append(f"not replayed, so in the total as the journal has them: {', '.join(map(repr, kept))}.")
        new = [name for name in self.totals.functions if name not in self.survey.functions]
        if new:
            notes.append(
                f"not in the journal, so without comparison, and only in the total of now: {', '.join(map(repr, new))}."
            )
        return notes

    def _chunks(self) -> Any:
        texts = list(self.needs.texts)
        if self._moved:
            texts += [
                name for name in ("prompt", "completion") if name in self.survey.available() and name not in texts
            ]
        whole = self.scorer.takes_batches
        for chunk in chunks(self.survey, texts, self._chunk, batches=whole):
            self._count(chunk)
            yield chunk

    def _count(self, chunk: Chunk) -> None:
        _ = chunk.cells  # counts repeated rows
        self.samples += len(chunk)
        self.repeated_rows += chunk.repeated
        if chunk.whole:
            self.groups += len(chunk) // chunk.size
            return
        for name in self.scorer.grouped:
            self.left_out[name] += len(chunk)
        keys = list(zip(chunk.batch.tolist(), chunk.group.tolist(), strict=True))
        found = Counter(keys)
        self.groups += len(found)
        self.incomplete_groups += len(found)
        run, rank = chunk.table["run"][0].as_py(), chunk.table["rank"][0].as_py()
        for (batch, group), samples in found.items():
            if len(self.incomplete) < _EXAMPLES:
                self.incomplete.append({"run": run, "rank": rank, "batch": batch, "group": group, "samples": samples})

    def _finish(self, in_flight: deque[SubmittedChunk]) -> int:
        """Wait for the oldest chunk, write and compare it; returns its samples."""
        submitted = in_flight.popleft()
        outcomes, result = submitted.result()
        chunk = submitted.chunk
        if result is not None:
            self.totals.add(result)
        if self.output is not None and outcomes:
            self.output.write(chunk, outcomes)
        self.diff.add(chunk, outcomes)
        return len(chunk)
