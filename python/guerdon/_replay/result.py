"""Result of a replay as plain values: the same for Python, the JSON of the command, its table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ReplayResult"]


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
