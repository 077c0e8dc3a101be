"""A check, and its result: `Finding`, with the rows that show it.

A finding can be read without its check: the message says what happens and what to do, each example
names a row, an excerpt of the completion and the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from guerdon.profile.samples import text_of

if TYPE_CHECKING:
    from guerdon.profile.subject import Subject

__all__ = [
    "SEVERITIES",
    "Check",
    "Example",
    "Finding",
    "Severity",
    "counted",
    "excerpt",
    "first_line",
]

Severity = Literal["error", "warning", "info"]

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
"""Severities, the worst first. An error trains the wrong thing; a warning may; an info is worth
knowing and counts for no exit code."""

MOST_EXAMPLES: Final = 5
EXCERPT: Final = 120


@dataclass(frozen=True)
class Example:
    """One row that shows a finding.

    Attributes:
        row: Its place in the data, from 0; None where the finding is about no row.
        completion: An excerpt of the completion that was scored.
        values: What was compared, by what it is: a score, None for an abstention, or a status.
        note: What else is to be said of it.
    """

    row: int | None
    completion: str
    values: Mapping[str, float | str | None] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""

    def __str__(self) -> str:
        parts = [] if self.row is None else [f"row {self.row}"]
        if self.completion:
            parts.append(repr(self.completion))
        parts += [f"{name} {_shown(value)}" for name, value in self.values.items()]
        return ", ".join(parts) + (f" ({self.note})" if self.note else "")

    def to_dict(self) -> dict[str, Any]:
        """Its form in JSON."""
        return {"row": self.row, "completion": self.completion, "values": dict(self.values), "note": self.note}


@dataclass(frozen=True)
class Finding:
    """Result of one check of one function.

    Attributes:
        check: Id of the check, ``"order"`` or ``"probe:empty"``.
        severity: ``"error"``, ``"warning"`` or ``"info"``.
        message: What happens, on how many rows, and what to do.
        examples: Rows that show it, at most 5.

    Examples:
        >>> print(Finding("order", "error", "Scores depend on the order.", (Example(3, "42", {"score": 1.0}),)))
        error [order] Scores depend on the order.
          row 3, '42', score 1
    """

    check: str
    severity: Severity
    message: str
    examples: tuple[Example, ...] = ()

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity={self.severity!r}: expected one of {', '.join(SEVERITIES)}.")
        object.__setattr__(self, "examples", tuple(self.examples)[:MOST_EXAMPLES])

    def __str__(self) -> str:
        return "\n".join([f"{self.severity} [{self.check}] {self.message}", *(f"  {each}" for each in self.examples)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: check, severity, message, examples."""
        examples = [example.to_dict() for example in self.examples]
        return {"check": self.check, "severity": self.severity, "message": self.message, "examples": examples}


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        id: What findings call it.
        run: Finds: nothing where all is well.
    """

    id: str
    run: Callable[[Subject], Iterable[Finding]]


def counted(findings: Iterable[Finding]) -> list[Finding]:
    """Those that make a function unfit: errors and warnings."""
    return [finding for finding in findings if finding.severity != "info"]


def excerpt(completion: object, most: int = EXCERPT) -> str:
    """The beginning and the end of a completion, or of the last message of a conversation."""
    text = text_of(completion)
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail]} … {text[-tail:]} ({len(text)} characters)"


def first_line(reason: str) -> str:
    """The first line of a reason, to be followed by a full stop."""
    return next((line.strip() for line in reason.splitlines() if line.strip()), "").removesuffix(".")


def _shown(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    return "None" if value is None else str(value)
