"""How far judges agree, from what they recorded in ``extra``.

- Votes: ``agreement`` and ``votes``. Comparisons: ``flips`` of ``comparisons``. A panel: a number
  for each member.
- Which function is what, and who the members are, the metadata of a part say. Those of earlier
  versions don't: there numbers between which the value lies are taken for a panel's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._insight.journal.dispatcher_facts import JudgeKind
from guerdon._insight.report.moments import PairMoments
from guerdon._insight.report.rows import Floats, Integers, Rows, floats
from guerdon._insight.report.survey import FunctionSurvey

__all__ = ["Comparisons", "Judges", "Panel", "Votes"]

_SNIFFED: Final = 64
_MOST_MEMBERS: Final = 64  # of a panel, and so many numbers that only look like it:
_MOST_GUESSED: Final = 16


@dataclass
class Votes:
    """Judges that were asked several times about a sample.

    Attributes:
        samples: By bucket; `agreement` is the sum, `unanimous` counts samples without a dissent.
    """

    samples: Integers
    agreement: Floats
    unanimous: Integers


@dataclass
class Comparisons:
    """Judges that compared the samples of a group, each pair in both orders.

    Attributes:
        comparisons: By bucket; of these, `flips` contradicted the same pair the other way round.
    """

    comparisons: Floats
    flips: Floats


@dataclass
class Panel:
    """Several judges, or other numbers that were recorded of each sample.

    Attributes:
        samples: Samples with at least two numbers by bucket; `same` counts those where all are the
            same, `spread` sums the most less the least.
        pairs: Of each pair of members; `equal` counts pairs that are the same, `apart` sums their
            distance.
        outside: Samples whose value does not lie between the numbers.
        declared: The journal says that these are members.
    """

    samples: Integers
    same: Integers
    spread: Floats
    members: list[str] = field(default_factory=list)
    pairs: PairMoments = field(default_factory=lambda: PairMoments(1, _MOST_MEMBERS))
    equal: Integers = field(default_factory=lambda: np.zeros((_MOST_MEMBERS, _MOST_MEMBERS), np.int64))
    apart: Floats = field(default_factory=lambda: np.zeros((_MOST_MEMBERS, _MOST_MEMBERS)))
    outside: int = 0
    declared: bool = False


class Judges:
    """What was recorded of all judges, by function."""

    def __init__(self, buckets: int, functions: Sequence[FunctionSurvey]) -> None:
        self._buckets = buckets
        self._names = [each.name for each in functions]
        self.votes: dict[int, Votes] = {}
        self.comparisons: dict[int, Comparisons] = {}
        self._panels: dict[int, Panel] = {}

    @property
    def panels(self) -> dict[int, Panel]:
        """Panels, and functions whose values lie between the numbers that they recorded."""
        return {number: panel for number, panel in self._panels.items() if _is_panel(panel)}

    def add(self, rows: Rows) -> None:
        """Read what the rows recorded."""
        if "extra" not in rows.batch.schema.names:
            return
        column = rows.batch.column("extra")
        if column.null_count == len(column):
            return
        known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        values = floats(rows.batch, "value")
        for function in np.unique(rows.function[known]).tolist():
            facts = None if rows.facts.judges is None else rows.facts.judges.get(self._names[function])
            if rows.facts.judges is not None and facts is None:
                continue
            mine = np.flatnonzero(known & (rows.function == function))
            first = _objects(_taken(column, mine[:_SNIFFED]))
            kind = _kind(first) if facts is None else facts.kind
            if kind is None:
                continue
            objects = _objects(_taken(column, mine)) if len(mine) > _SNIFFED else first
            self._add(function, kind, facts, objects, rows.bucket[mine], values[mine])

    def _add(
        self,
        function: int,
        kind: str,
        facts: JudgeKind | None,
        objects: list[dict[str, Any]],
        bucket: Integers,
        values: Floats,
    ) -> None:
        count = self._buckets
        if kind == "votes":
            if function not in self.votes:
                self.votes[function] = Votes(np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64))
            agreement = _numbers(objects, "agreement")
            known = np.isfinite(agreement)
            of = self.votes[function]
            of.samples += np.bincount(bucket[known], minlength=count)
            of.agreement += np.bincount(bucket[known], agreement[known], count)
            of.unanimous += np.bincount(bucket[known & (agreement >= 1 - 1e-9)], minlength=count)
        elif kind == "pairwise":
            if function not in self.comparisons:
                self.comparisons[function] = Comparisons(np.zeros(count), np.zeros(count))
            self.comparisons[function].comparisons += _summed(_numbers(objects, "comparisons"), bucket, count)
            self.comparisons[function].flips += _summed(_numbers(objects, "flips"), bucket, count)
        elif kind == "panel":
            if function not in self._panels:
                self._panels[function] = Panel(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count))
            panel = self._panels[function]
            if facts is not None:
                panel.declared = True
                panel.members += [name for name in facts.members if name not in panel.members]
                del panel.members[_MOST_MEMBERS:]
            _add_panel(panel, objects, bucket, values)


def _is_panel(panel: Panel) -> bool:
    samples = int(panel.samples.sum())
    return samples > 0 and (panel.declared or panel.outside <= 0.01 * samples)


def _kind(recorded: list[dict[str, Any]]) -> str | None:
    """What a function seems to be that recorded this; None for one that asks no judges."""
    if not any(_tells(each) for each in recorded):
        return None
    if any("agreement" in each for each in recorded):
        return "votes"
    return "pairwise" if any("comparisons" in each for each in recorded) else "panel"


def _add_panel(panel: Panel, objects: list[dict[str, Any]], bucket: Integers, values: Floats) -> None:
    recorded = () if panel.declared else dict.fromkeys(key for each in objects[:_SNIFFED] for key in each)
    for name in recorded:
        if name not in panel.members and len(panel.members) < _MOST_GUESSED and _is_numeric(objects, name):
            panel.members.append(name)
    if len(panel.members) < 2:
        return
    given = np.stack([_numbers(objects, name) for name in panel.members], axis=1)
    known = np.isfinite(given)
    several = known.sum(axis=1) >= 2
    if not several.any():
        return
    given, known, bucket, values = given[several], known[several], bucket[several], values[several]
    least = np.where(known, given, np.inf).min(axis=1)
    most = np.where(known, given, -np.inf).max(axis=1)
    near = 1e-6 * np.maximum(1.0, np.abs(most))
    panel.outside += int((np.isfinite(values) & ((values < least - near) | (values > most + near))).sum())
    count = len(panel.samples)
    panel.samples += np.bincount(bucket, minlength=count)
    panel.same += np.bincount(bucket[least == most], minlength=count)
    panel.spread += np.bincount(bucket, most - least, count)
    panel.pairs.add(0, given)
    size = len(panel.members)
    for one in range(size):
        for other in range(one + 1, size):
            both = known[:, one] & known[:, other]
            x, y = given[both, one], given[both, other]
            panel.equal[one, other] += int((x == y).sum())
            panel.apart[one, other] += np.abs(x - y).sum()


def _tells(recorded: dict[str, Any]) -> bool:
    """Whether this may be what a judge recorded of votes, comparisons or members."""
    if "agreement" in recorded or "comparisons" in recorded:
        return True
    return sum(isinstance(value, (int, float)) for value in recorded.values()) >= 2


def _taken(column: Any, places: Integers) -> list[str]:
    import pyarrow as pa

    texts: list[str] = column.take(pa.array(places)).to_pylist()
    return texts


def _objects(texts: list[str]) -> list[dict[str, Any]]:
    """The JSON objects; an empty one for what is none. Names lose the function's own in front."""
    try:
        found = json.loads("[" + ",".join(texts) + "]")
        if len(found) != len(texts):
            raise ValueError
    except (ValueError, RecursionError):
        found = [_object(text) for text in texts]
    found = [each if isinstance(each, dict) else {} for each in found]
    if any("/" in key for each in found[:_SNIFFED] for key in each):
        found = [{key.rpartition("/")[2]: value for key, value in each.items()} for each in found]
    return found


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _numbers(objects: list[dict[str, Any]], name: str) -> Floats:
    given = [each.get(name) for each in objects]
    try:
        return np.array(given, np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        return np.array([float(each) if isinstance(each, (int, float)) else np.nan for each in given])


def _is_numeric(objects: list[dict[str, Any]], name: str) -> bool:
    given = [each.get(name) for each in objects[:_SNIFFED]]
    numbers = [each for each in given if each is not None]
    return bool(numbers) and all(isinstance(each, (int, float)) for each in numbers)


def _summed(values: Floats, bucket: Integers, count: int) -> Floats:
    known = np.isfinite(values)
    sums: Floats = np.bincount(bucket[known], values[known], count).astype(np.float64)
    return sums
