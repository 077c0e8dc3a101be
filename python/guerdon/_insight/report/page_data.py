"""What the page's script draws from: counts by function and bucket, so that it can filter.

- Small whatever the journal: buckets and functions are bounded by the survey, texts and reasons are
  shortened until all fits (`fitted`).
- Texts are those of `safe_text.visible`; the page sets them as text, never as markup.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from guerdon._insight.html_frame.safe_text import as_json, shortened, visible
from guerdon._insight.report.aggregates import function_name, number, panel_pairs, place_fields
from guerdon._insight.report.judges import Panel
from guerdon._insight.report.moments import Moments
from guerdon._insight.report.rows import FAILED, STATUSES
from guerdon._insight.report.slowest import RowLocation
from guerdon._insight.report.summary import Summary
from guerdon._insight.report.tally import TimeBins
from guerdon._insight.report.texts import read_texts

__all__ = ["fitted", "page_data"]

_MOST_BYTES: Final = 2_600_000
_LONGEST_TEXT: Final = 4000
_MOST_SAMPLES: Final = 60


def page_data(summary: Summary, figures: dict[str, Any]) -> dict[str, Any]:
    """All that the charts and tables need."""
    groups, axis = summary.groups, summary.survey.axis
    functions = range(len(summary.names))
    numbers = {name: place for place, name in enumerate(figures["functions"])}
    slowest = summary.slowest.places()
    return {
        "kind": axis.kind,
        "first": axis.first.tolist(),
        "last": axis.last.tolist(),
        "times": {"least": TimeBins.LEAST, "per_decade": TimeBins.PER_DECADE},
        "failed": [label for label, failed in zip(STATUSES, FAILED, strict=True) if failed],
        "functions": [_function(summary, place) for place in functions],
        "total": _total(summary) if len(functions) > 1 else None,
        "correlation": {"by_bucket": groups.by_bucket, "pairs": _pairs(summary, figures)},
        "failures": [_numbered(each, numbers) for each in figures["failures"]],
        "slowest": [_place(summary, place) for place in slowest],
        "judges": _judges(summary),
        "samples": _samples(summary, slowest),
    }


def fitted(data: dict[str, Any]) -> str:
    """The data as JSON, with so much of texts, tracebacks and examples that the page stays
    small."""
    for longest in (_LONGEST_TEXT, 1500, 500, 120, 0):
        shorter = {**data, "samples": [_shorter(each, longest) for each in data["samples"]] if longest else []}
        if longest < _LONGEST_TEXT:
            shorter["failures"] = [
                {**each, "reason": each["reason"][: longest or 60], "examples": _examples(each, longest)}
                for each in data["failures"]
            ]
        text = as_json(shorter)
        if len(text.encode()) <= _MOST_BYTES:
            break
    return text


def _shorter(sample: dict[str, Any], longest: int) -> dict[str, Any]:
    return {**sample, "texts": {name: shortened(text, longest) for name, text in list(sample["texts"].items())[:20]}}


def _examples(failure: dict[str, Any], longest: int) -> list[dict[str, Any]]:
    return [
        {**each, "reason": each["reason"][:longest], "traceback": None} for each in failure["examples"][:1] if longest
    ]


def _function(summary: Summary, place: int) -> dict[str, Any]:
    tally = summary.tally
    edges, values = tally.edges[place], tally.values[place]
    status = tally.status[place]
    return {
        "name": function_name(summary, place),
        "weight": number(tally.weights[place]),
        "edges": None if edges is None else _rounded(edges),
        "values": None if values is None else _rounded(values),
        "min": number(tally.least[place].min()),
        "max": number(tally.most[place].max()),
        "status": {label: status[:, at].tolist() for at, label in enumerate(STATUSES) if status[:, at].any()},
        **_moments(tally.rewards, place),
        "histogram": _sparse(tally.histogram[place]),
        "run": _sparse(tally.run[place]),
        "queue": _sparse(tally.queue[place]),
        "versions": sorted({first for first, _ in tally.versions.get(place, {}).values()}),
        **{name: _rounded(sums[place]) for name, sums in tally.sums.items()},
        **_groups(summary, place),
    }


def _total(summary: Summary) -> dict[str, Any]:
    tally = summary.tally
    weights = np.nan_to_num(tally.weights, nan=1.0)
    with np.errstate(invalid="ignore"):
        ends = np.stack([tally.least.min(axis=1) * weights, tally.most.max(axis=1) * weights])
    ends = np.where(np.isfinite(ends), ends, 0.0)
    return {
        "min": number(np.minimum(ends.min(axis=0), 0).sum()),
        "max": number(np.maximum(ends.max(axis=0), 0).sum()),
        **_moments(summary.groups.total, ...),
        **_groups(summary, -1),
    }


def _groups(summary: Summary, place: int) -> dict[str, Any]:
    groups = summary.groups
    return {
        name: counts[place].tolist()
        for name, counts in (
            ("groups", groups.groups),
            ("same", groups.same),
            ("best", groups.best),
            ("worst", groups.worst),
        )
    }


def _moments(moments: Moments, where: Any) -> dict[str, Any]:
    """Number, mean and sum of squared deviations by bucket."""
    return {
        "n": moments.count[where].astype(int).tolist(),
        "mean": _rounded(moments.mean[where]),
        "m2": _rounded(moments.squares[where]),
    }


def _pairs(summary: Summary, figures: dict[str, Any]) -> list[list[Any]]:
    sums = summary.groups.pairs.sums
    size = len(summary.names)
    matrix = figures["correlation"]["matrix"]
    return [
        [
            one,
            other,
            [_rounded(sums[at, :, one, other]) for at in range(6)] if summary.groups.by_bucket else matrix[one][other],
        ]
        for one in range(size)
        for other in range(one + 1, size)
    ]


def _numbered(failure: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    examples = [{name: value for name, value in each.items() if name != "function"} for each in failure["examples"]]
    return {**failure, "function": numbers[failure["function"]], "examples": examples}


def _place(summary: Summary, place: RowLocation) -> dict[str, Any]:
    return {**place_fields(summary, place), "function": place.function, "bucket": place.bucket}


def _judges(summary: Summary) -> list[dict[str, Any]]:
    judges, found = summary.judges, []
    for place, votes in judges.votes.items():
        found.append(
            {"function": place, "kind": "votes", "agreed": _rounded(votes.agreement), "of": votes.samples.tolist()}
        )
    for place, compared in judges.comparisons.items():
        agreed = compared.comparisons - compared.flips
        found.append(
            {"function": place, "kind": "comparisons", "agreed": _rounded(agreed), "of": _rounded(compared.comparisons)}
        )
    for place, panel in judges.panels.items():
        found.append(_panel(summary, place, panel))
    return found


def _panel(summary: Summary, place: int, panel: Panel) -> dict[str, Any]:
    return {
        "function": place,
        "kind": "members with one opinion",
        "agreed": panel.same.tolist(),
        "of": panel.samples.tolist(),
        "spread": _rounded(panel.spread),
        "pairs": panel_pairs(panel),
    }


def _samples(summary: Summary, slowest: list[RowLocation]) -> list[dict[str, Any]]:
    """Rows with their texts, where the report is to have texts."""
    if summary.examples is None:
        return []
    chosen: dict[tuple[int, int], tuple[str, RowLocation]] = {}
    for why, by_function in (("highest reward", summary.examples.highest), ("lowest reward", summary.examples.lowest)):
        for places in by_function:
            for place in places:
                chosen.setdefault((place.part, place.row), (why, place))
    for failure in sorted(summary.failures.reasons.values(), key=lambda each: -each.count)[:20]:
        for place, _, _ in failure.examples[:1]:
            chosen.setdefault((place.part, place.row), ("failed", place))
    for place in slowest[:10]:
        chosen.setdefault((place.part, place.row), ("slow", place))
    rows = list(chosen.items())[: max(_MOST_SAMPLES, 2 * len(summary.names))]
    texts = read_texts(summary.journal, [key for key, _ in rows])
    return [
        {
            **_place(summary, place),
            "why": why,
            "texts": {visible(name): visible(text) for name, text in texts.get(key, {}).items()},
        }
        for key, (why, place) in sorted(rows, key=lambda each: (each[1][1].function, each[1][0]))
    ]


def _sparse(counts: Any) -> list[list[int]]:
    """For each bucket the bins that have counts: ``[bin, count, bin, count, …]``."""
    return [
        np.stack([places, row[places]], axis=1).ravel().tolist() for row in counts for places in [np.flatnonzero(row)]
    ]


def _rounded(values: Any) -> list[float | int]:
    """Seven digits are enough to draw."""
    found: list[float | int] = []
    for value in np.asarray(values, np.float64).tolist():
        short = float(f"{value:.7g}") if math.isfinite(value) else 0.0
        found.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return found
