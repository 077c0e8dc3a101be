"""When failures are too many.

- A function fails too often when more than ``max_failure_rate`` of its cells failed, in a batch of
  at least 8 samples; with ``on_failure="raise"`` at the first failure, whatever the size.
- Every failure counts, whatever ``on_failure`` made of its cell; what a quorum left behind is none.
- The message names the timeout that ran out, and how to allow more time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from guerdon._registration.spec import FunctionSpec
from guerdon.status import Status

if TYPE_CHECKING:
    from guerdon.results import Failure, RewardBatch

FEWEST_SAMPLES = 8
QUORUM_REASON = "quorum"  # of a cell that `group_quorum` left behind
# Reasons of timeouts that are not an attempt's own, as the engine gives them, and what to raise.
LONGER = {
    "total timeout": "Raise the function's `total_timeout`",
    "group timeout": "Raise `group_timeout`",
    "batch timeout": "Raise `batch_timeout`",
}


def breach(result: RewardBatch, specs: Sequence[FunctionSpec], max_failure_rate: float) -> str | None:
    """The error message when a function failed too often; None when none did."""
    failures: dict[str, list[Failure]] = {}
    for failure in result.failures():
        if failure.status is Status.CANCELLED and failure.reason == QUORUM_REASON:
            continue
        failures.setdefault(failure.function, []).append(failure)
    if not failures:
        return None
    samples = len(result)
    messages = []
    for spec in specs:
        failed = failures.get(spec.name, [])
        limit = spec.policy.max_failure_rate
        limit = max_failure_rate if limit is None else limit
        if failed and spec.policy.on_failure == "raise":
            messages.append(_message(spec, failed, samples, 'on_failure="raise"'))
        elif samples >= FEWEST_SAMPLES and len(failed) > limit * samples:
            messages.append(_message(spec, failed, samples, f"limit {100 * limit:.3g} %"))
    return "\n".join(messages) or None


def any_cancelled(result: RewardBatch) -> bool:
    """Whether calls were cancelled, whatever ``on_failure`` made of their cells."""
    return any(failure.status is Status.CANCELLED for failure in result.failures())


def _message(spec: FunctionSpec, failed: list[Failure], samples: int, limit: str) -> str:
    counts = Counter(_kind(spec, failure) for failure in failed)
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    most = counts.most_common(1)[0][0]
    first = failed[0]
    tries = "1 attempt" if first.attempts == 1 else f"{first.attempts} attempts"
    return (
        f"reward function {spec.name!r} failed on {len(failed)} of {samples} samples ({limit}): {kinds}.\n"
        f"First: sample {first.sample}: {first.reason} (after {tries}). "
        f"{_advice(spec, next(failure for failure in failed if _kind(spec, failure) == most))}"
    )


def _kind(spec: FunctionSpec, failure: Failure) -> str:
    if failure.status is not Status.TIMEOUT:
        return failure.status.label
    return f"timeout ({failure.reason if failure.reason in LONGER else f'{spec.policy.timeout:g} s'})"


def _advice(spec: FunctionSpec, failure: Failure) -> str:
    if failure.status is Status.TIMEOUT:
        longer = LONGER.get(failure.reason, "Raise `timeout`")
        slower = ", lower `Limit.concurrency`" if spec.lane == "asyncio" else ""
        return f"{longer}{slower}, or set `max_failure_rate`."
    if failure.status is Status.CRASHED:
        return "It ends the worker that runs it: look at what it printed above, or set `max_failure_rate`."
    if failure.status is Status.CANCELLED:
        return "The batch was cancelled before it was complete."
    return "The tracebacks are in `error.result.failures()`; fix the function, or set `max_failure_rate`."
