"""The failures of one batch on one rank, counted by function, in plain values that ranks exchange.

- Every failure counts, whatever ``on_failure`` made of its cell, except cells that a quorum
  cancelled.
- A message names the timeout that ran out, and how to allow more time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guerdon._functions.spec import FunctionSpec
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon.results import Failure, RewardBatch

QUORUM_REASON = "quorum"  # of a cell that `group_quorum` left behind
# Reasons of timeouts that are not an attempt's own, as the engine gives them, and what to raise.
LONGER = {
    "total timeout": "Raise the function's `total_timeout`",
    "group timeout": "Raise `group_timeout`",
    "batch timeout": "Raise `batch_timeout`",
}


@dataclass(frozen=True)
class FunctionFailures:
    """The failures of one function in one batch, at least one.

    Attributes:
        samples: Indices of the samples, ascending.
        kinds: How many of each kind.
        first: The first sample and what happened to it.
        advice: What to do about the most frequent kind.
    """

    samples: tuple[int, ...]
    kinds: Mapping[str, int]
    first: str
    advice: str


@dataclass(frozen=True)
class BatchFailures:
    """The failures of one batch.

    Attributes:
        samples: Samples of the batch.
        functions: The failures of each function that has any, by name.
        cancelled: Whether calls were cancelled, so that the batch is not evidence about others.
        skipped: By name, the samples for which a function was not called, ascending.
    """

    samples: int
    functions: Mapping[str, FunctionFailures]
    cancelled: bool = False
    skipped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def count(result: RewardBatch, specs: Sequence[FunctionSpec]) -> BatchFailures:
    """Counts the failures of a result."""
    failures: dict[str, list[Failure]] = {}
    cancelled = False
    for failure in result.failures():
        if failure.status is Status.CANCELLED:
            if failure.reason == QUORUM_REASON:
                continue
            cancelled = True
        failures.setdefault(failure.function, []).append(failure)
    counted = {spec.name: _of_function(spec, failures[spec.name]) for spec in specs if spec.name in failures}
    return BatchFailures(len(result), counted, cancelled, result.skipped)


def first_failure_raises(counted: BatchFailures, specs: Sequence[FunctionSpec]) -> str | None:
    """The error message where a function with ``on_failure="raise"`` failed; None where none
    did."""
    messages = []
    for spec in specs:
        found = counted.functions.get(spec.name)
        if found is not None and spec.policy.on_failure == "raise":
            failed = f"{len(found.samples)} of {counted.samples} samples"
            messages.append(describe(spec.name, f'{failed} (on_failure="raise")', [(0, found)], ranks=1))
    return "\n".join(messages) or None


def describe(function: str, failed: str, found: Sequence[tuple[int, FunctionFailures]], *, ranks: int) -> str:
    """Returns an error message.

    Args:
        failed: On how many samples, and of which limit.
        found: The failures of the batch by rank, those of the ranks that have any.
        ranks: How many ranks there are.
    """
    kinds: Counter[str] = Counter()
    for _, one in found:
        kinds.update(one.kinds)
    most = kinds.most_common(1)[0][0]
    mostly = (one.advice for _, one in found if max(one.kinds, key=one.kinds.__getitem__) == most)
    advice = next(mostly, found[0][1].advice)
    where = f"rank {found[0][0]}, " if ranks > 1 else ""
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    return f"reward function {function!r} failed on {failed}: {counts}.\nFirst: {where}{found[0][1].first}. {advice}"


def any_cancelled(result: RewardBatch) -> bool:
    """Returns whether calls were cancelled, whatever ``on_failure`` made of their cells."""
    return any(failure.status is Status.CANCELLED for failure in result.failures())


def _of_function(spec: FunctionSpec, failed: list[Failure]) -> FunctionFailures:
    kinds = Counter(_kind(spec, failure) for failure in failed)
    most = kinds.most_common(1)[0][0]
    first = failed[0]
    tries = "1 attempt" if first.attempts == 1 else f"{first.attempts} attempts"
    return FunctionFailures(
        samples=tuple(failure.sample for failure in failed),
        kinds=dict(kinds),
        first=f"sample {first.sample}: {first.reason} (after {tries})",
        advice=_advice(spec, next(failure for failure in failed if _kind(spec, failure) == most)),
    )


def _kind(spec: FunctionSpec, failure: Failure) -> str:
    if failure.status is not Status.TIMEOUT:
        return failure.status.label
    cause = _cause(failure)
    return f"timeout ({cause if cause in LONGER else f'{spec.policy.timeout:g} s'})"


def _cause(failure: Failure) -> str:
    """Its reason without the last error of an endpoint."""
    return failure.reason.partition("; last error: ")[0]


def _advice(spec: FunctionSpec, failure: Failure) -> str:
    otherwise = "choose another `on_failure`" if spec.policy.on_failure == "raise" else "set `max_failure_rate`"
    if failure.status is Status.TIMEOUT:
        longer = LONGER.get(_cause(failure), "Raise `timeout`")
        slower = ", lower `Limit.concurrency`" if spec.lane == "asyncio" else ""
        return f"{longer}{slower}, or {otherwise}."
    if failure.status is Status.CRASHED:
        return f"It ends the worker that runs it: look at what it printed above, or {otherwise}."
    if failure.status is Status.CANCELLED:
        return "The batch was cancelled before it was complete."
    return f"The tracebacks are in `error.result.failures()`; fix the function, or {otherwise}."
