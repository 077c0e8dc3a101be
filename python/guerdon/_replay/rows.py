"""The rows that a replay writes: those of a journal, with the new outcomes under the old keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guerdon._insight.journal.schema import KEYS, arrow_schema, import_arrow, text_column
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon._replay.chunks import Chunk
    from guerdon._replay.scoring import Outcomes

__all__ = ["rows_of"]

_LABELS: Final = [status.label for status in Status]
_MOST_REASON: Final = 4096


def rows_of(
    chunk: Chunk,
    outcomes: Mapping[str, Outcomes],
    versions: Mapping[str, str],
    weights: Mapping[str, float],
    texts: Mapping[str, tuple[list[str | None], str]],
    incomplete: str,
) -> Any:
    """A table with a row for each cell, sample by sample.

    Args:
        texts: The text columns, one text a sample, and their kinds.
        incomplete: The dispatcher's option, for the metadata.
    """
    arrow = import_arrow()
    names = list(outcomes)
    samples, functions = np.divmod(np.arange(len(chunk) * len(names)), len(names))
    first = chunk.table.select(list(KEYS)).take(chunk.first_rows[samples])

    def of(attribute: str) -> Any:
        return np.stack([getattr(outcomes[name], attribute) for name in names], axis=1).ravel()

    reward, status = of("reward"), of("status")
    cells = list(zip(samples.tolist(), functions.tolist(), strict=True))
    reasons = [outcomes[names[f]].reasons.get(s, (None, None)) for s, f in cells]
    extras = [dict(outcomes[names[f]].extra.get(s, ())) for s, f in cells]
    answers = [extra.pop("answer") if isinstance(extra.get("answer"), str) else None for extra in extras]
    weight = [_weight(chunk, weights, names[f], s) for s, f in cells]
    submitted = [datetime.fromtimestamp(outcomes[names[f]].submitted, UTC) for _, f in cells]
    columns: dict[str, Any] = {name: first[name] for name in KEYS if name != "function"}
    columns |= {
        "function": [names[f] for f in functions.tolist()],
        "version": [versions.get(names[f]) or None for f in functions.tolist()],
        "weight": weight,
        "value": arrow.array(reward.astype(np.float64), mask=(status != Status.OK) | np.isnan(reward)),
        "reward": arrow.array(reward, mask=np.isnan(reward)),
        "status": [_LABELS[each] for each in status.tolist()],
        "reason": [reason if reason is None else reason[:_MOST_REASON] for reason, _ in reasons],
        "traceback": [traceback for _, traceback in reasons],
        "submitted": submitted,
        "queue_s": of("queue_s"),
        "run_s": of("run_s"),
        "attempts": of("attempts"),
        "answer": answers,
        "extra": [_json(extra) if extra else None for extra in extras],
    }
    for name, (values, _) in texts.items():
        columns[text_column(name)] = [values[sample] for sample in samples.tolist()]
    schema = arrow_schema({name: kind for name, (_, kind) in texts.items()}, incomplete)
    arrays = []
    for field in schema:
        given = columns.get(field.name)
        if given is None:
            arrays.append(arrow.nulls(len(cells), field.type))
        elif isinstance(given, arrow.ChunkedArray):
            plain = given.combine_chunks()
            arrays.append(plain if plain.type == field.type else plain.cast(field.type))
        else:
            arrays.append(_array(arrow, given, field.type))
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(arrow: Any, values: Any, kind: Any) -> Any:
    if arrow.types.is_dictionary(kind):
        return arrow.array(values, arrow.string()).dictionary_encode().cast(kind)
    if kind == arrow.string() and isinstance(values, list):
        values = [None if text is None else _encodable(text) for text in values]
    return arrow.array(values, kind) if not isinstance(values, arrow.Array) else values.cast(kind)


def _json(extra: Mapping[str, Any]) -> str:
    return json.dumps(extra, default=str, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _encodable(text: str) -> str:
    """UTF-8 has no half of a surrogate pair; it is shown escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _weight(chunk: Chunk, weights: Mapping[str, float], name: str, sample: int) -> float:
    if name in weights:
        return weights[name]
    cells = chunk.cells.get(name)
    known = np.nan if cells is None else cells.weight[sample]
    return 1.0 if np.isnan(known) else float(known)
