"""Rows to read: the highest and lowest rewards, failures and slow calls, with their texts, which
are read only of the rows that are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from guerdon._insight.journal.parts import JournalParts
from guerdon._insight.journal.schema import is_text
from guerdon._insight.report.aggregates import place_fields
from guerdon._insight.report.slowest import RowLocation
from guerdon._insight.report.summary import Summary
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
    texts = _read_texts(summary.journal, [key for key, _ in rows])
    return [
        {
            **place_fields(summary, place),
            "why": why,
            "texts": {readable(name): readable(text) for name, text in texts.get(key, {}).items()},
        }
        for key, (why, place) in sorted(rows, key=lambda each: (each[1][1].function, each[1][0]))
    ]


def _read_texts(journal: JournalParts, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], dict[str, str]]:
    """The texts, answers and chosen columns of these rows, by part and place in it.

    Args:
        wanted: Number of a part and place of a row.
    """
    by_part: dict[int, list[int]] = {}
    for part, row in sorted(set(wanted)):
        by_part.setdefault(part, []).append(row)
    found: dict[tuple[int, int], dict[str, str]] = {}
    for part, rows in by_part.items():
        file = journal.parts[part]
        columns = [name for name in file.schema.names if name == "answer" or is_text(name)]
        for row, batch, place in file.rows(rows, columns):
            texts = _texts(batch, place)
            found[(part, row)] = {name: _readable(text, file.kinds.get(name)) for name, text in texts.items()}
    return found


def _texts(batch: Any, row: int) -> dict[str, str]:
    values = {name.removeprefix("column_"): batch.column(name)[row].as_py() for name in batch.schema.names}
    return {name: value for name, value in values.items() if value is not None}


def _readable(text: str, kind: str | None) -> str:
    """A conversation as its messages, other JSON indented, text as it is."""
    if kind != "json":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, list) and value and all(isinstance(each, dict) and "role" in each for each in value):
        return "\n\n".join(_message(each) for each in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _message(message: dict[str, Any]) -> str:
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    shown = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"[{message['role']}] {shown}" + (f"\n{json.dumps(rest, ensure_ascii=False)}" if rest else "")
