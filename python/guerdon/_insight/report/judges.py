"""Agreement of judges, from their records in ``extra``.

- Votes: ``agreement`` and ``votes``. Comparisons: ``flips`` of ``comparisons``. A panel: a number
  for each member.
- The metadata of a part names the functions' kinds and the members.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._insight.journal.dispatcher_facts import JudgeKind
from guerdon._insight.journal.schema import import_arrow
from guerdon._insight.report.moments import PairMoments
from guerdon._insight.report.rows import Floats, Integers, Rows
from guerdon._insight.report.survey import FunctionSurvey

__all__ = ["Comparisons", "Judges", "Panel", "VoteCounts"]

_SNIFFED: Final = 64
_MOST_MEMBERS: Final = 64


@dataclass
class VoteCounts:
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
    """Several judges of each sample.

    Attributes:
        samples: Samples with at least two numbers by bucket; `same` counts those where all are the
            same, `spread` sums the most less the least.
        pairs: Of each pair of members; `equal` counts pairs that are the same, `apart` sums their
            distance.
    """

    samples: Integers
    same: Integers
    spread: Floats
    members: list[str] = field(default_factory=list)
    pairs: PairMoments = field(default_factory=lambda: PairMoments(1, _MOST_MEMBERS))
    equal: Integers = field(default_factory=lambda: np.zeros((_MOST_MEMBERS, _MOST_MEMBERS), np.int64))
    apart: Floats = field(default_factory=lambda: np.zeros((_MOST_MEMBERS, _MOST_MEMBERS)))


class Judges:
    """Records of all judges, by function."""

    def __init__(self, buckets: int, functions: Sequence[FunctionSurvey]) -> None:
        self._buckets = buckets
        self._names = [each.name for each in functions]
        self.votes: dict[int, VoteCounts] = {}
        self.comparisons: dict[int, Comparisons] = {}
        self.panels: dict[int, Panel] = {}

    def add(self, rows: Rows) -> None:
        """Read what the rows recorded."""
        if "extra" not in rows.batch.schema.names:
            return
        column = rows.batch.column("extra")
        if column.null_count == len(column):
            return
        known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        for function in np.unique(rows.function[known]).tolist():
            facts = rows.facts.judges.get(self._names[function])
            if facts is not None:
                mine = np.flatnonzero(known & (rows.function == function))
                texts = column.take(import_arrow().array(mine)).to_pylist()
                self._add(function, facts, _objects(texts), rows.bucket[mine])

    def _add(self, function: int, facts: JudgeKind, objects: list[dict[str, Any]], bucket: Integers) -> None:
        count = self._buckets
        if facts.kind == "votes":
            if function not in self.votes:
                self.votes[function] = VoteCounts(np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64))
            agreement = _numbers(objects, "agreement")
            known = np.isfinite(agreement)
            of = self.votes[function]
            of.samples += np.bincount(bucket[known], minlength=count)
            of.agreement += np.bincount(bucket[known], agreement[known], count)
            of.unanimous += np.bincount(bucket[known & (agreement >= 1 - 1e-9)], minlength=count)
        elif facts.kind == "pairwise":
            if function not in self.comparisons:
                self.comparisons[function] = Comparisons(np.zeros(count), np.zeros(count))
            self.comparisons[function].comparisons += _summed(_numbers(objects, "comparisons"), bucket, count)
            self.comparisons[function].flips += _summed(_numbers(objects, "flips"), bucket, count)
        elif facts.kind == "panel":
            if function not in self.panels:
                self.panels[function] = Panel(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count))
            panel = self.panels[function]
            panel.members += [name for name in facts.members if name not in panel.members]
            del panel.members[_MOST_MEMBERS:]
            _add_panel(panel, objects, bucket)


def _add_panel(panel: Panel, objects: list[dict[str, Any]], bucket: Integers) -> None:
    if len(panel.members) < 2:
        return
    given = np.stack([_numbers(objects, name) for name in panel.members], axis=1)
    known = np.isfinite(given)
    several = known.sum(axis=1) >= 2
    if not several.any():
        return
    given, known, bucket = given[several], known[several], bucket[several]
    least = np.where(known, given, np.inf).min(axis=1)
    most = np.where(known, given, -np.inf).max(axis=1)
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


def _objects(texts: list[str]) -> list[dict[str, Any]]:
    """The JSON objects; an empty one for other text. Names lose the function's own in front."""
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


def _summed(values: Floats, bucket: Integers, count: int) -> Floats:
    known = np.isfinite(values)
    sums: Floats = np.bincount(bucket[known], values[known], count).astype(np.float64)
    return sums
