"""Records of functions: extra columns, metrics, extra fields of dict results.

- A function that sees the whole batch recorded whole columns: they stay as they are.
- Records of single calls become one column of one value per sample, in sample order, None where a
  call recorded nothing.
- Metrics are numbers, in sample order; other values are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class RecordedColumns:
    """The records of one function in one batch."""

    extra: list[tuple[str, list[Any]]] = field(default_factory=list)
    metrics: list[tuple[str, float]] = field(default_factory=list)


def decode(
    name: str,
    shape: str,
    samples: int,
    num_generations: int,
    blobs: Iterable[tuple[int, list[int], bytes]],
    reported: Iterable[tuple[int, str, Any]] = (),
) -> RecordedColumns:
    """Decodes the records of the function `name` of this `shape`: (first sample of the call, its
    samples if they were gathered, JSON) in sample order. `reported` has values from its lane, as
    (sample, field, value).

    Extra fields of dict results and reported fields become columns named ``<function>/<field>``.
    """
    recorded = RecordedColumns()
    columns: dict[str, list[Any]] = {}
    width = {"sample": 1, "group": num_generations}.get(shape, samples)
    for first, gathered, blob in blobs:
        for path, kind, *item in _items(name, json.loads(blob)):
            if kind == "metric":
                if isinstance(item[1], (bool, int, float)):
                    recorded.metrics.append((str(item[0]), float(item[1])))
            elif kind == "fields":
                for key, value in item[0].items():
                    _column(columns, f"{path}/{key}", samples)[first] = value
            elif shape == "batch":
                recorded.extra.append((str(item[0]), item[1] if isinstance(item[1], list) else [item[1]]))
            else:
                _place(_column(columns, str(item[0]), samples), gathered or range(first, first + width), item[1])
    for sample, key, value in reported:
        _column(columns, f"{name}/{key}", samples)[sample] = value
    recorded.extra.extend(columns.items())
    return recorded


def _items(path: str, items: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """The items of a record, each with the function that recorded it: `path`, or a member of it."""
    for kind, *item in items:
        if kind == "member":
            yield from _items(f"{path}/{item[0]}", item[1])
        elif kind == "votes":
            yield from _votes(path, item[0])
        else:
            yield path, kind, *item


def _votes(path: str, records: Iterable[Iterable[Sequence[Any]]]) -> Iterator[tuple[Any, ...]]:
    """The items of several records of one sample: a list of the values of each name."""
    lists: dict[str, dict[str, list[Any]]] = {"fields": {}, "extra": {}}
    for _, kind, *item in (each for record in records for each in _items(path, record)):
        if kind == "metric":
            yield path, kind, *item
        elif kind == "fields":
            for key, value in item[0].items():
                lists[kind].setdefault(key, []).append(value)
        else:
            lists["extra"].setdefault(str(item[0]), []).append(item[1])
    yield path, "fields", lists["fields"]
    for name, values in lists["extra"].items():
        yield path, "extra", name, [values]


def _column(columns: dict[str, list[Any]], name: str, samples: int) -> list[Any]:
    column = columns.get(name)
    if column is None:
        column = columns[name] = [None] * samples
    return column


def _place(column: list[Any], places: Sequence[int], values: Any) -> None:
    """Puts one call's values where its samples are; what isn't one value per sample is the value of
    each of them."""
    if not isinstance(values, list) or len(values) != len(places):
        values = [values] * len(places)
    for place, value in zip(places, values, strict=True):
        column[place] = value
