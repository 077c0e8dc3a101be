"""Journals of what functions really gave: batches are scored, and written by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, RewardFailureError, Status
from tests.journal_files import row, write_journal


def rows_of(
    functions: Sequence[Any],
    batches: Sequence[Mapping[str, Any]],
    *,
    size: int,
    weights: Sequence[float] | None = None,
    run: str = "run-1",
    rank: int = 0,
) -> list[dict[str, Any]]:
    """The rows of batches that these functions score.

    Args:
        batches: The keyword arguments of `Dispatcher.score`, without ``num_generations``.
        size: Samples of a group.
    """
    rows = []
    with Dispatcher(functions, weights=weights, workers=1, max_failure_rate=1.0) as dispatcher:
        for number, batch in enumerate(batches):
            try:
                result = dispatcher.score(num_generations=size, **batch)
            except RewardFailureError as error:
                if error.result is None:
                    raise
                result = error.result
            reasons = {(each.function, each.sample): each for each in result.failures()}
            rewards = result.rewards.reshape(len(result), -1)
            status = result.status.reshape(len(result), -1)
            for sample in range(len(result)):
                for place, name in enumerate(result.functions):
                    value, outcome = float(rewards[sample, place]), Status(int(status[sample, place]))
                    failure = reasons.get((name, sample))
                    rows.append(
                        row(
                            run=run,
                            rank=rank,
                            batch=number,
                            step=number,
                            group=sample // size,
                            sample=sample,
                            function=name,
                            weight=float(result.weights[place]),
                            status=outcome.label,
                            value=value if outcome is Status.OK else None,
                            reward=None if value != value else value,
                            reason=failure.reason if failure else None,
                            **_texts(batch, sample),
                        )
                    )
    return rows


def record(
    folder: Path, functions: Sequence[Any], batches: Sequence[Mapping[str, Any]], *, size: int, **more: Any
) -> Path:
    """A journal of these batches."""
    parts = more.pop("parts", 1)
    rows = rows_of(functions, batches, size=size, **more)
    return write_rows(folder, rows, parts=parts)


def write_rows(folder: Path, rows: list[dict[str, Any]], *, parts: int = 1) -> Path:
    """A journal of rows whose texts are not yet strings: JSON where one of a column is none."""
    names = [name for name in rows[0] if name in ("prompt", "completion") or name.startswith("column_")]
    kinds = {}
    for name in names:
        values = [each[name] for each in rows]
        if all(value is None or isinstance(value, str) for value in values):
            continue
        kinds[name.removeprefix("column_")] = "json"
        rows = [{**each, name: json.dumps(each[name])} for each in rows]
    columns = [name.removeprefix("column_") for name in names if name.startswith("column_")]
    return write_journal(folder, rows, parts=parts, texts=True, columns=columns, kinds=kinds)


def _texts(batch: Mapping[str, Any], sample: int) -> dict[str, Any]:
    own = {"prompts": "prompt", "completions": "completion"}
    return {own.get(name, f"column_{name}"): values[sample] for name, values in batch.items()}
