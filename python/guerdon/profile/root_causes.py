"""Faults of a function, one entry per root cause: `root_causes`.

- Probes that are paid for one reason make one entry: a function that looks for the answer anywhere
  in the text is paid for a dozen of them.
- All other findings are entries of their own, but for those of `_DEPENDS`, which have one cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from guerdon.profile.finding import Example, Finding, Severity

__all__ = ["RootCause", "root_causes"]

_PROBE: Final = "probe:"
_REASONING: Final = ("right_in_reasoning", "reasoning_only", "reasoning_unfinished")
_SEVERAL: Final = ("right_then_wrong", "all_forms")

# Faults of a function, the probes of which one shows it, and those that it explains besides. The
# first that fits takes them.
_CAUSES: Final = (
    (
        "pays for completions without an answer",
        ("empty", "blank", "refusal", "very_long", "odd_unicode", "empty_form", "very_long_wrong"),
        ("prompt_echo",),
    ),
    (
        "accepts the answer inside other text",
        ("all_answers", "choice", "negated", "negated_form", "repeated", "last_mention", "longer", "preceded"),
        (*_SEVERAL, *_REASONING, "unterminated", "prompt_echo", "negative", "decimals"),
    ),
    ("takes one of several answers", _SEVERAL, _REASONING),
    ("reads the answer from the reasoning", _REASONING, ()),
    ("accepts a part of the answer, or its letters in another order", ("part", "first_letter", "shuffled"), ()),
    (
        "takes other numbers for the right one",
        ("decimals", "thousands", "negative", "point_dropped", "nan", "inf", "minus_inf"),
        (),
    ),
    (
        "takes the answer or the reference for code or a pattern",
        ("wildcard", "placeholder", "code", "dot_as_pattern"),
        (),
    ),
    ("pays for values that stand for no answer", ("none", "null", "empty_list"), ()),
)
_DEPENDS: Final = ("repeat", "order", "batch", "process", "threads", "clock")


@dataclass(frozen=True)
class RootCause:
    """One root cause.

    Attributes:
        says: A clause about the function, to follow its name.
        findings: Those that it explains, the worst first.
    """

    function: str
    severity: Severity
    says: str
    findings: tuple[Finding, ...]

    @property
    def example(self) -> Example | None:
        """The row that shows it."""
        return next((example for finding in self.findings for example in finding.examples), None)

    def __str__(self) -> str:
        if len(self.findings) == 1 and not self.findings[0].check.startswith(_PROBE):
            name = "" if repr(self.function) in self.says else f"{self.function!r}: "
            return f"{self.severity} [{self.findings[0].check}] {name}{self.says}"
        probes = [finding.check.removeprefix(_PROBE) for finding in self.findings]
        what = f"{len(probes)} probes" if len(probes) > 1 else probes[0]
        shown = "" if self.example is None else f", e.g. {self.example}"
        return f"{self.severity} [{_PROBE[:-1]}] {self.function!r} {self.says}: {what}{shown}"

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {
            "function": self.function,
            "severity": self.severity,
            "says": self.says,
            "findings": [finding.check for finding in self.findings],
            "example": None if self.example is None else self.example.to_dict(),
        }


def root_causes(function: str, findings: Sequence[Finding]) -> list[RootCause]:
    """The root causes of a function's errors and warnings, the worst first."""
    left = {finding.check: finding for finding in findings if finding.severity != "info"}
    found = []
    for says, shown_by, explains in _CAUSES:
        names = [f"{_PROBE}{name}" for name in (*shown_by, *explains)]
        if any(name in left for name in names[: len(shown_by)]):
            mine = tuple(left.pop(name) for name in names if name in left)
            found.append(RootCause(function, _worst(mine), says, mine))
    depends = tuple(left.pop(name) for name in _DEPENDS if name in left)
    if depends:
        others = "" if len(depends) == 1 else f" ({', '.join(each.check for each in depends[1:])} too.)"
        found.append(RootCause(function, _worst(depends), depends[0].message + others, depends[:1]))
    rest = [each for each in findings if each.severity != "info" and left.get(each.check) is not None]
    for each in rest:
        probe = each.check.startswith(_PROBE)
        says = each.message.removeprefix(f"{function!r} ").partition(": ")[0] if probe else each.message
        found.append(RootCause(function, each.severity, says, (each,)))
    return sorted(found, key=lambda each: (each.severity != "error", -len(each.findings)))


def _worst(findings: Sequence[Finding]) -> Severity:
    return "error" if any(each.severity == "error" for each in findings) else "warning"
