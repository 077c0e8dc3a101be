"""The result of one batch with the samples of several ranks, as each rank's own.

- A slice has the values, failures and records of its samples, counted from 0, and can be pickled.
- Counts that the engine has by function and not by sample, requests and tokens, are divided
  equally, so that a mean over ranks is as if each rank scored its own samples. Percentiles are the
  batch's.
"""

from __future__ import annotations

from typing import Any, Final

from guerdon.results import RewardBatch
from guerdon.results.records import Recorded, decode

# Entries of `RewardBatch.timings` that are sums over samples; the rest are percentiles.
_SUMS: Final = frozenset({"run_total_s", "retries", "deferrals", "excused", "shared", "cached"})
# Values that are equal for every sample of a batch.
_SAME: Final = (
    "_priced",
    "_shapes",
    "_gated",
    "_pure",
    "_cached",
    "_token_users",
    "incomplete",
    "functions",
    "weights",
    "elapsed_s",
    "tail_s",
)


def slices(result: RewardBatch, ranks: int) -> list[RewardBatch]:
    """One result a rank, in their order, of as many samples each.

    Args:
        result: Of the samples of all ranks, one rank's behind the other's. No function saw the
            whole batch in one call.
    """
    rows = len(result) // ranks
    _, generations, count = result.rewards.shape
    # If a group is on two ranks neither has the whole.
    shape = (-1, generations, count) if rows % generations == 0 else (-1, 1, count)
    by_rank = [slice(rank * rows, (rank + 1) * rows) for rank in range(ranks)]
    recorded = _recorded(result, by_rank)
    timings = {
        name: {key: value / ranks if key in _SUMS else value for key, value in times.items()}
        for name, times in result.timings.items()
    }
    usage = {name: {key: value / ranks for key, value in used.items()} for name, used in result.usage.items()}
    parts = []
    for rank, own in enumerate(by_rank):
        part = object.__new__(RewardBatch)
        values: dict[str, Any] = {name: getattr(result, name) for name in _SAME}
        for name in ("rewards", "status", "attempts", "queue_s", "run_s"):
            values[name] = getattr(result, name).reshape(-1, count)[own].reshape(shape).copy()
        values["_failed_cells"] = [
            (sample - own.start, *rest) for sample, *rest in result._failed_cells if own.start <= sample < own.stop
        ]
        vars(part).update(values, timings=timings, usage=usage, _recorded=recorded[rank], _batch=None)
        parts.append(part)
    return parts


def _recorded(result: RewardBatch, by_rank: list[slice]) -> list[list[Recorded]]:
    """Returns by rank the records of each function on its samples: the same columns on all of them.
    A metric is that of the rank of its call's first sample."""
    _, generations, _ = result.rewards.shape
    source, samples = result._source, len(result)
    found: list[list[Recorded]] = [[] for _ in by_rank]
    for index, (name, shape) in enumerate(zip(result.functions, result._shapes, strict=True)):
        blobs, reported = source.records(index), source.extra(index)
        whole = decode(name, shape, samples, generations, blobs, reported)
        for rank, own in enumerate(by_rank):
            of_rank = [blob for blob in blobs if own.start <= min(blob[1] or [blob[0]]) < own.stop]
            metrics = decode(name, shape, samples, generations, of_rank).metrics if whole.metrics else []
            found[rank].append(Recorded([(column, values[own]) for column, values in whole.extra], metrics))
    return found
