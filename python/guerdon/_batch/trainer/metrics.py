"""Guerdon's own metrics of each batch for a trainer's log: `docs/metrics.md` has the table.

`TrainerContext.log` passes them to TRL's ``log_metric``, behind what reward functions recorded with
``log_extra`` and ``log_metric`` in their workers, which it replays there.

- The names of a batch's metrics follow from its functions and the size of its groups, not from its
  outcomes: all ranks log the same names, and none of them waits for another.
- A metric without a meaning is left out: no tokens of a function that is not a judge.
- The default for a log line is `MAIN`, so that it stays readable with many functions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

from guerdon.results.status import Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guerdon.results import RewardBatch

TAIL: Final = "guerdon/tail_s"
"""Time from the last completion to the last reward."""

LogMetrics = Literal["main", "all"]

MAIN: Final = frozenset(("failed_frac", "abstained_frac", "timeout_frac", "run_p50_s", "run_p99_s", "queue_p99_s"))
"""Metrics of each function in a log line, unless the dispatcher has ``log_metrics="all"``."""

FALLBACK: Final = "fallback_frac"
"""Logged for each function with a fallback, with any ``log_metrics``: nothing else in a log shows
a judge that is down."""

DEFERRALS: Final = "deferrals"
"""Logged for each judge, service and async function, with any ``log_metrics``: nothing else in a
log shows a server that refuses calls (429)."""

_FRACTIONS: Final = {"timeout_frac": Status.TIMEOUT, "error_frac": Status.ERROR, "crashed_frac": Status.CRASHED}
_TIMES: Final = ("run_p50_s", "run_p90_s", "run_p99_s", "queue_p50_s", "queue_p99_s")


def metrics_of(result: RewardBatch, which: LogMetrics = "all") -> dict[str, float]:
    """The metrics of a batch: ``guerdon/tail_s``, and of each function ``guerdon/<name>/…``:
    fractions of the samples, seconds, spread within groups, and what requests used."""
    failed = Counter((failure.function, failure.status) for failure in result.failures())
    metrics: dict[str, float] = {TAIL: result.tail_s}
    samples = len(result)
    for place, name in enumerate(result.functions):
        of_function = {"failed_frac": sum(failed[name, status] for status in Status) / samples}
        for key, status in _FRACTIONS.items():
            of_function[key] = failed[name, status] / samples
        of_function["abstained_frac"] = float((result.status[:, :, place] == Status.ABSTAINED).sum()) / samples
        if name in result._with_fallback:
            by = result.extra.get(f"{name}/by", ())
            of_function[FALLBACK] = sum(each is not None for each in by) / samples
        if name in result._gated:
            of_function["skipped_frac"] = len(result.skipped.get(name, ())) / samples
        timings = result.timings[name]
        if name in result._pure:
            of_function["shared_frac"] = timings["shared"] / samples
        if name in result._cached:
            of_function["cached_frac"] = timings["cached"] / samples
        of_function.update(_spread(result.rewards[:, :, place]))
        of_function.update((key, timings[key]) for key in _TIMES if timings[key] == timings[key])
        of_function.update(_used(result, name))
        of_function[DEFERRALS] = timings["deferrals"]
        always = MAIN | {FALLBACK, *([DEFERRALS] if name in result._deferrable else [])}
        shown = of_function.keys() if which == "all" else of_function.keys() & always
        logged = ((key, value) for key, value in of_function.items() if key in shown)
        metrics.update((f"guerdon/{name}/{key}", value) for key, value in logged)
    return metrics


def _spread(rewards: NDArray[np.float32]) -> dict[str, float]:
    """Returns how one function's rewards ``[P, G]`` differ within groups; nothing for groups of
    one.

    A group with fewer than two rewards has no spread, like one whose rewards are all equal.
    """
    import numpy as np  # not by `import guerdon`

    if rewards.shape[1] < 2:
        return {}
    there = ~np.isnan(rewards)
    counts = there.sum(axis=1)
    values = np.where(there, rewards, 0.0).astype(np.float64)
    means = values.sum(axis=1) / np.maximum(counts, 1)
    squares = np.where(there, values - means[:, None], 0.0) ** 2
    lowest = np.where(there, rewards, np.inf).min(axis=1)
    highest = np.where(there, rewards, -np.inf).max(axis=1)
    differ = (counts > 1) & (lowest < highest)
    std = np.sqrt(squares.sum(axis=1) / np.maximum(counts - 1, 1))
    return {"group_std": float(np.where(differ, std, 0.0).mean()), "no_spread_frac": 1.0 - float(differ.mean())}


def _used(result: RewardBatch, name: str) -> dict[str, float]:
    """Returns the usage of a function's requests; the cost of one that has a price."""
    used = result.usage.get(name, {})
    tokens = name in result._token_users
    known = {key: value for key, value in used.items() if tokens or not (key.endswith("_tokens") or key == "unknown")}
    return {key: value for key, value in known.items() if value == value}
