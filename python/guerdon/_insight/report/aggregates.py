"""The figures of a report as JSON: what ``--json`` prints, and what findings are made of.

Means, deviations, shares and sums of times are exact, percentiles of times within 6 % and never
above the longest. Unknown figures (the mean of no rewards) are null. Lists ``over_time`` have one
item a bucket of ``axis``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from guerdon._insight.report.moments import correlations
from guerdon._insight.report.rows import STATUSES, number
from guerdon._insight.report.slowest import RowLocation
from guerdon._insight.report.summary import Summary
from guerdon._insight.report.tally import TimeBins
from guerdon._system.safe_text import readable, shortened
from guerdon.results.crash_text import without_worker_frames

__all__ = ["aggregates", "function_name", "place_fields", "ratio"]

SCHEMA: Final = 1
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_MOST_REASONS: Final = 60
_LONGEST_REASON: Final = 600
_LONGEST_TRACEBACK: Final = 2000


def aggregates(summary: Summary) -> dict[str, Any]:
    """All figures, without findings."""
    known, tally, axis = summary.survey, summary.tally, summary.survey.axis
    chosen = known.selection
    return {
        "schema": SCHEMA,
        "journal": readable(summary.journal.folder),
        "parts": len(summary.journal.parts),
        "open_parts": sum(part.is_open for part in summary.journal.parts),
        "rows": int(tally.status.sum()),
        "rows_without_step": known.without_step,
        "runs": {readable(name): count for name, count in known.runs.items()},
        "steps": chosen.steps_text() if chosen.of_steps else None,
        "left_out_functions": [shortened(readable(name), 200) for name in known.left_out_functions],
        "workers": next((part.facts.workers for part in reversed(summary.journal.parts) if part.facts.workers), None),
        "ranks": {str(rank): count for rank, count in sorted(tally.ranks.items())},
        "first": None if tally.first is None else tally.first.isoformat(),
        "last": None if tally.last is None else tally.last.isoformat(),
        "axis": {"kind": axis.kind, "first": axis.first.tolist(), "last": axis.last.tolist()},
        "functions": {
            function_name(summary, place): _function(summary, place) for place in range(len(known.functions))
        },
        "total": _total(summary),
        "correlation": {
            "functions": [function_name(summary, place) for place in range(len(known.functions))],
            "matrix": [[number(value) for value in row] for row in correlations(summary.groups.pairs.sums)],
        },
        "failures": _failures(summary),
        "slowest": [place_fields(summary, place) for place in summary.slowest.places()],
        "restarts": [{**each, "run": readable(each["run"])} for each in summary.restarts.to_list()],
        "notes": [readable(note) for note in summary.journal.notes],
    }


def function_name(summary: Summary, place: int) -> str:
    """The name to show; the names of two functions are never the same."""
    name = readable(summary.names[place])
    short = shortened(name, 200)
    return short if short == name else f"{short} [{place}]"


def _function(summary: Summary, place: int) -> dict[str, Any]:
    tally, groups, parts = summary.tally, summary.groups, summary.journal.parts
    status = tally.status[place].sum(axis=0)
    rows, failed = int(status.sum()), int(tally.failed()[place].sum())
    mean, std = tally.rewards.over(place)
    found: dict[str, Any] = {
        "rows": rows,
        "lane": next((lane for part in reversed(parts) if (lane := part.facts.lanes.get(summary.names[place]))), None),
        "rewards": int(tally.rewards.count[place].sum()),
        "mean": number(mean),
        "std": number(std),
        "min": number(tally.least[place].min()),
        "max": number(tally.most[place].max()),
        "weight": number(tally.weights[place]),
        "status": {label: int(count) for label, count in zip(STATUSES, status, strict=True) if count},
        "failed_share": ratio(failed, rows),  # of rows that a damaged file has lost, none
        "fallback_share": ratio(int(tally.fallbacks[place]), rows),
        "fallback_reason": shortened(readable(tally.why.get(place, "")), _LONGEST_REASON) or None,
        "histogram": _histogram(summary, place),
        "versions": _versions(summary, place),
        **{name: number(sums[place].sum()) for name, sums in tally.sums.items()},
        "repeated_share": ratio(tally.attempts[place] - tally.called[place], tally.attempts[place]),
        "run_total_s": number(tally.run_total[place].sum()),
        **{name: _percentiles(times, place) for name, times in tally.times.items()},
        **_groups(groups, place),
    }
    buckets = range(len(summary.survey.axis))
    each = [tally.rewards.over((place, at)) for at in buckets]
    rows_of = tally.status[place].sum(axis=1)
    found["over_time"] = {
        "rewards": tally.rewards.count[place, :-1].astype(int).tolist(),
        "mean": [number(mean) for mean, _ in each],
        "std": [number(std) for _, std in each],
        "failed_share": [ratio(tally.failed()[place, at], rows_of[at]) for at in buckets],
        "zero_spread_share": [ratio(groups.same[place, at], groups.groups[place, at]) for at in buckets],
        **{
            name: {
                label: [number(times.percentile((place, at), share)) for at in buckets]
                for label, share in _PERCENTILES.items()
            }
            for name, times in tally.times.items()
        },
    }
    return found


def _total(summary: Summary) -> dict[str, Any]:
    groups = summary.groups
    each = [groups.total.over(at) for at in range(len(groups.total.count) - 1)]
    mean, std = groups.total.over()
    buckets = range(groups.same.shape[1] - 1)
    shares = {
        name: [ratio(counts[-1, at], groups.groups[-1, at]) for at in buckets]
        for name, counts in (
            ("zero_spread_share", groups.same),
            ("too_easy_share", groups.best),
            ("too_hard_share", groups.worst),
        )
    }
    return {
        "rewards": int(groups.total.count.sum()),
        "mean": number(mean),
        "std": number(std),
        **_groups(groups, -1),
        "over_time": {
            "mean": [number(mean) for mean, _ in each],
            "std": [number(std) for _, std in each],
            **shares,
        },
    }


def _groups(groups: Any, place: int) -> dict[str, Any]:
    count = int(groups.groups[place].sum())
    return {
        "groups": count,
        "zero_spread": int(groups.same[place].sum()),
        "zero_spread_share": ratio(groups.same[place].sum(), count),
        "zero_spread_best": int(groups.best[place].sum()),
        "zero_spread_worst": int(groups.worst[place].sum()),
    }


def _histogram(summary: Summary, place: int) -> dict[str, Any]:
    tally = summary.tally
    counts = tally.histogram[place].sum(axis=0)
    edges, values = tally.edges[place], tally.values[place]
    if edges is not None:
        return {"edges": [number(edge) for edge in edges], "counts": counts[: len(edges) - 1].tolist()}
    values = values if values is not None else np.empty(0)
    return {"values": [number(value) for value in values], "counts": counts[: len(values)].tolist()}


def _versions(summary: Summary, place: int) -> list[dict[str, Any]]:
    axis = summary.survey.axis
    seen = summary.tally.versions.get(place, {})
    return [
        {"version": readable(name)[:40], "first": int(axis.first[first]), "last": int(axis.last[last])}
        for name, (first, last) in sorted(seen.items(), key=lambda each: each[1])
    ]


def _percentiles(times: TimeBins, where: Any) -> dict[str, float | None]:
    return {label: number(times.percentile(where, share)) for label, share in _PERCENTILES.items()}


def _failures(summary: Summary) -> list[dict[str, Any]]:
    axis = summary.survey.axis
    found = sorted(summary.failures.reasons.values(), key=lambda each: -each.count)
    return [
        {
            "function": function_name(summary, each.function),
            "status": each.status,
            "reason": shortened(readable(each.reason), _LONGEST_REASON),
            "count": each.count,
            "first": _step(axis.first, min(each.buckets)),
            "last": _step(axis.last, max(at for at in each.buckets)),
            "buckets": {str(at): count for at, count in sorted(each.buckets.items())},
            "examples": [
                {
                    **place_fields(summary, place),
                    "reason": shortened(readable(reason), _LONGEST_REASON),
                    "traceback": _shown_traceback(traceback),
                }
                for place, reason, traceback in each.examples
            ],
        }
        for each in found[:_MOST_REASONS]
    ]


def _shown_traceback(text: str | None) -> str | None:
    """For people: without the frames of the worker that crashed, and of a length that fits."""
    text = without_worker_frames(text)
    return text and shortened(readable(text), _LONGEST_TRACEBACK)


def _step(steps: Any, bucket: int) -> int | None:
    return int(steps[bucket]) if bucket < len(steps) else None


def place_fields(summary: Summary, place: RowLocation) -> dict[str, Any]:
    """Returns the place of a row in the run, its outcome and its times."""
    return {"function": function_name(summary, place.function), **place.fields}


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``, None of nothing."""
    return number(part / whole) if whole else None
