"""Profiles of one function and of all, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._functions.spec import FunctionSpec
from guerdon.profile.advice import Advice
from guerdon.profile.finding import SEVERITIES, Finding
from guerdon.profile.measurement import Measurement
from guerdon.profile.root_causes import RootCause, root_causes

__all__ = ["FORMAT", "FunctionProfile", "Profile", "Step", "StepPrediction", "plain", "times_of"]

FORMAT: Final = 4
"""Version of the JSON. It grows where a field changes its meaning or goes."""


def times_of(seconds: Sequence[float]) -> dict[str, float] | None:
    """Returns the number of run times, their percentiles and the longest; None without any."""
    if not seconds:
        return None
    p50, p90, p99 = (float(each) for each in np.quantile(seconds, (0.5, 0.9, 0.99)))
    return {"rows": len(seconds), "p50_s": p50, "p90_s": p90, "p99_s": p99, "max_s": max(seconds)}


@dataclass
class FunctionProfile:
    """One reward function, as far as it was profiled.

    Attributes:
        spec: The function as it is registered.
        findings: From the worst.
        measurement: What its calls take; None where nothing could be run.
        advice: What to choose; None where nothing was measured.
        judge: Of a judge: requests, tokens, cost, flips, shifts, and levels of concurrency with
            their median times; empty of others.
        checks: Which checks ran to their end.
        cut_short: Why some did not; None if all did.
    """

    spec: FunctionSpec
    findings: list[Finding] = field(default_factory=list)
    measurement: Measurement | None = None
    advice: Advice | None = None
    judge: dict[str, Any] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    cut_short: str | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.spec.name

    @property
    def seconds(self) -> list[float]:
        """Run times of calls."""
        return [] if self.measurement is None else self.measurement.seconds

    @property
    def times(self) -> dict[str, float] | None:
        """Of all calls; None if none ended."""
        return times_of(self.seconds)

    def sorted_findings(self) -> list[Finding]:
        """Errors first, then warnings."""
        return sorted(self.findings, key=lambda finding: SEVERITIES.index(finding.severity))

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        advice, found = self.advice, self.measurement
        return {
            "findings": [finding.to_dict() for finding in self.sorted_findings()],
            "lane": advice.lane if advice else self.spec.lane,
            "lane_reason": advice.lane_reason if advice else None,
            "timeout": advice.timeout if advice else None,
            "timeout_reason": advice.timeout_reason if advice else None,
            "decorator": advice.decorator if advice else None,
            "current": {"lane": self.spec.lane, "timeout": self.spec.policy.timeout},
            "times": self._times(),
            "failures": dict(found.counts()) if found else {},
            "unmeasured": found.unmeasured if found else 0,
            "cpu": found.cpu_s if found else None,
            "waiting": found.waiting_share if found else None,
            "memory": self._memory(),
            "judge": self.judge or None,
            "checks": self.checks,
            "cut_short": self.cut_short,
        }

    def _times(self) -> dict[str, Any] | None:
        times, found = self.times, self.measurement
        if times is None:
            return None
        longer = [] if found is None else [{"characters": size, "seconds": seconds} for size, seconds in found.long]
        return {
            "calls": self.spec.shape,
            **times,
            "longer": longer,
        }

    def _memory(self) -> dict[str, int] | None:
        found = self.measurement
        if found is None or not found.worker_bytes:
            return None
        return {
            "worker_bytes": found.worker_bytes,
            "empty_worker_bytes": found.empty_bytes,
            "peak_bytes": found.peak_bytes,
            "added_bytes": found.added_bytes,
        }


@dataclass(frozen=True)
class StepPrediction:
    """Seconds of a step.

    Attributes:
        workers: Of the process lane; 0 where no function runs in one.
        threads: Of the thread lane.
        alone: Seconds of each function if it were alone.
        beyond: What the measured times are extrapolated over, a sentence's part each.
    """

    seconds: float
    workers: int
    threads: int
    alone: dict[str, float]
    beyond: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {"workers": self.workers, "threads": self.threads, "seconds": self.seconds}


@dataclass(frozen=True)
class Step:
    """The predicted reward time of a step.

    Attributes:
        workers: Of the dispatcher, whether or not a function runs in one.
        now: With the functions as they are.
        advised: With the lanes and the number of workers that are advised.
        workers_reason: Why so many workers.
    """

    prompts: int
    generations: int
    workers: int
    now: StepPrediction
    advised: StepPrediction
    workers_reason: str

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {
            "prompts": self.prompts,
            "generations": self.generations,
            "now": self.now.to_dict(),
            "advised": {**self.advised.to_dict(), "reason": self.workers_reason},
            "alone": self.now.alone,
            "beyond": list(self.now.beyond),
        }


@dataclass
class Profile:
    """Profile of some reward functions.

    Attributes:
        rows: Rows that they were run on.
        recorded: Whether the data has completions; otherwise references replace them.
        left_out: Rows that were not run, as they lack a completion and others have one.
        functions: By name.
        step: None where no function has times.
        seconds: How long the profile took.
        cut_short: Why it ended early; None if it did not.
    """

    rows: int
    recorded: bool
    left_out: int = 0
    functions: dict[str, FunctionProfile] = field(default_factory=dict)
    step: Step | None = None
    seconds: float = 0.0
    cut_short: str | None = None

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """All of them, with the names of the functions."""
        for name, function in self.functions.items():
            for finding in function.sorted_findings():
                yield name, finding

    @property
    def clean(self) -> bool:
        """Returns true if there is neither an error nor a warning; what was not checked is a
        warning."""
        return all(finding.severity == "info" for _, finding in self.findings())

    def root_causes(self) -> list[RootCause]:
        """The faults of the functions, one entry per root cause, the worst first."""
        found = [each for name, mine in self.functions.items() for each in root_causes(name, mine.sorted_findings())]
        return sorted(found, key=lambda each: SEVERITIES.index(each.severity))

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` has it: plain values, None for what is not known."""
        from guerdon._native import __version__

        found = {
            "format": FORMAT,
            "guerdon": __version__,
            "rows": self.rows,
            "recorded": self.recorded,
            "left_out": self.left_out,
            "seconds": self.seconds,
            "cut_short": self.cut_short,
            "clean": self.clean,
            "causes": [each.to_dict() for each in self.root_causes()],
            "step": self.step.to_dict() if self.step else None,
            "functions": {name: function.to_dict() for name, function in self.functions.items()},
        }
        shown: dict[str, Any] = plain(found)
        return shown


def plain(value: Any) -> Any:
    """Returns a value for JSON, which has no NaN and no infinity: those are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value
