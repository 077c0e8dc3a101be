"""Result of a replay as plain values: the same for Python, the JSON of the command, its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon._replay.run import ReplayRun

__all__ = ["ReplayResult", "result_of"]

_MOST_REASONS: Final = 5


@dataclass(frozen=True)
class ReplayResult:
    """Scores of a journal's rollouts now, compared with the recorded ones.

    Attributes:
        journal: Its path.
        rows: Rows of the journal that counted.
        samples: Their samples.
        groups: Their groups.
        incomplete: ``{"groups": how many lack samples, "examples": the first few}``.
        functions: By name: ``"scored"``, ``"left_out"`` (cells), ``"status"`` (cells by status),
            ``"reasons"`` (the commonest of failures), ``"usage"`` (of judges), and
            ``"diff"``, None for a function that the journal has no row of.
        total: The same diff of the weighted totals of whole groups.
        moved: The samples that moved most: numbers first, the farthest first; function by function.
        tolerance: Numbers no farther apart agree.
        differences: Cells that moved.
        failures: A message for each function that failed more often than allowed.
        notes: What a reader should know, a sentence each.

    Examples:
        >>> import tempfile, guerdon
        >>> short = guerdon.reward(lambda text: float(len(text) < 3), name="short")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     journal = guerdon.Journal(folder, texts=True)
        ...     with guerdon.Dispatcher([short], journal=journal) as dispatcher:
        ...         _ = dispatcher.score(completions=["a", "abc"], num_generations=2)
        ...     mended = guerdon.reward(lambda text: float(len(text) < 4), name="short")
        ...     found = guerdon.replay(folder, [mended])
        >>> found.differences, found.moved[0]["journal"]["reward"], found.moved[0]["now"]["reward"]
        (1, 0.0, 1.0)
    """

    journal: str
    rows: int
    samples: int
    groups: int
    incomplete: dict[str, Any]
    functions: dict[str, dict[str, Any]]
    total: dict[str, Any]
    moved: list[dict[str, Any]]
    tolerance: float
    differences: int
    failures: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as ``guerdon replay --json`` prints them (docs/replay.md)."""
        return asdict(self)

    def __repr__(self) -> str:
        functions = ", ".join(self.functions)
        return f"<ReplayResult of {functions} on {self.samples} samples: {self.differences} cells moved>"


def result_of(run: ReplayRun) -> ReplayResult:
    """Returns the result of a replay that ended."""
    functions = {}
    for row in run.totals.rows():
        name, comparison = row.name, run.diff.functions.get(row.name)
        reasons: Counter[str] = Counter()
        for why in run.totals.reasons(name):
            reasons[why.reason] += why.count
        functions[name] = {
            "scored": row.samples,
            "left_out": run.left_out[name],
            "status": {status.label: row.counts[status] for status in Status if row.counts[status]},
            "reasons": dict(reasons.most_common(_MOST_REASONS)),
            "usage": run.totals.used.get(name),
            "diff": comparison.to_dict() if comparison is not None and name in run.survey.functions else None,
        }
    return ReplayResult(
        journal=str(run.journal),
        rows=run.survey.rows,
        samples=run.samples,
        groups=run.groups,
        incomplete={"groups": run.incomplete_groups, "examples": run.incomplete},
        functions=functions,
        total=run.diff.total.to_dict(),
        moved=run.diff.moved(),
        tolerance=run.tolerance,
        differences=run.diff.differences,
        failures=run.totals.breaches(run.scorer.specs, run.dispatcher.options["max_failure_rate"]),
        notes=run.notes(),
    )
