"""Rows to read: the highest and lowest rewards, failures and slow calls, with their texts."""

from __future__ import annotations

from typing import Any, Final

from guerdon._insight.report.aggregates import place_fields
from guerdon._insight.report.slowest import RowLocation
from guerdon._insight.report.summary import Summary
from guerdon._insight.report.texts import read_texts
from guerdon._system.safe_text import readable

__all__ = ["samples"]

_MOST_SAMPLES: Final = 60


def samples(summary: Summary) -> list[dict[str, Any]]:
    """Rows with their texts by function, where the report is to have texts."""
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
    for place in summary.slowest.places()[:10]:
        chosen.setdefault((place.part, place.row), ("slow", place))
    rows = list(chosen.items())[: max(_MOST_SAMPLES, 2 * len(summary.names))]
    texts = read_texts(summary.journal, [key for key, _ in rows])
    return [
        {
            **place_fields(summary, place),
            "why": why,
            "texts": {readable(name): readable(text) for name, text in texts.get(key, {}).items()},
        }
        for key, (why, place) in sorted(rows, key=lambda each: (each[1][1].function, each[1][0]))
    ]
