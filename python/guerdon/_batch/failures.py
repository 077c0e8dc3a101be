"""When failures are too many: the error budget of a batch.

- F-1  A function breaks its budget when more than ``max_failed_fraction`` of its cells failed, in a batch of at least 8
       samples; with ``on_failure="raise"`` at the first failure, whatever the size.
- F-2  Every failure counts, whatever ``on_failure`` made of its cell; what a quorum left behind is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from guerdon._registration.spec import FunctionSpec
from guerdon.delivery import QUORUM_REASON
from guerdon.result import Failure, RewardBatch
from guerdon.status import Status

FEWEST_SAMPLES = 8


def breach(result: RewardBatch, specs: Sequence[FunctionSpec], max_failed_fraction: float) -> str | None:
    """What to tell the user when a function broke its budget; None when all kept theirs."""
    failures: dict[str, list[Failure]] = {}
    for failure in result.failures():
        if failure.status is Status.CANCELLED and failure.reason == QUORUM_REASON:
            continue
        failures.setdefault(failure.function, []).append(failure)
    samples = len(result)
    messages = []
    for spec in specs:
        failed = failures.get(spec.name, [])
        limit = spec.policy.max_failed_fraction
        limit = max_failed_fraction if limit is None else limit
        if failed and spec.policy.on_failure == "raise":
            messages.append(_message(spec, failed, samples, 'on_failure="raise"'))
        elif samples >= FEWEST_SAMPLES and len(failed) > limit * samples:
            messages.append(_message(spec, failed, samples, f"limit {100 * limit:.3g} %"))
    return "\n".join(messages) or None


def _message(spec: FunctionSpec, failed: list[Failure], samples: int, limit: str) -> str:
    counts = Counter(failure.status for failure in failed)
    kinds = ", ".join(f"{count} {_kind(spec, status)}" for status, count in counts.most_common())
    first = failed[0]
    tries = "1 attempt" if first.attempts == 1 else f"{first.attempts} attempts"
    return (
        f"reward function {spec.name!r} failed on {len(failed)} of {samples} samples ({limit}): {kinds}.\n"
        f"First: sample {first.sample}: {first.reason} (after {tries}). {_advice(spec, counts.most_common(1)[0][0])}"
    )


def _kind(spec: FunctionSpec, status: Status) -> str:
    return f"timeout ({spec.policy.timeout:g} s)" if status is Status.TIMEOUT else status.label


def _advice(spec: FunctionSpec, status: Status) -> str:
    if status is Status.TIMEOUT:
        slower = ", lower `Limit.concurrency`" if spec.lane == "asyncio" else ""
        return f"Raise `timeout`{slower}, or set `max_failed_fraction`."
    if status is Status.CRASHED:
        return "It ends the worker that runs it: look at what it printed above, or set `max_failed_fraction`."
    if status is Status.CANCELLED:
        return "The batch was cancelled before it was complete."
    return "The tracebacks are in `error.result.failures()`; mend the function, or set `max_failed_fraction`."
