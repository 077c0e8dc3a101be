"""The arithmetic of a diff, against plain loops and NumPy on all values at once, and its total
reward."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import guerdon
from guerdon import Dispatcher, reward
from guerdon._replay.chunks import ABSENT
from guerdon._replay.compare import Comparison
from guerdon.results.status import Status
from tests.journal_files import row, write_journal

FAILED = (Status.TIMEOUT, Status.ERROR, Status.CRASHED, Status.CANCELLED)

_value = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-10, 10, width=32))
_cell = st.one_of(
    st.tuples(_value, st.just(Status.OK)),
    st.tuples(st.just(math.nan), st.sampled_from([*FAILED, Status.ABSTAINED, Status.SKIPPED])),
    st.tuples(st.just(0.0), st.sampled_from(FAILED)),  # on_failure= gave a number
    st.tuples(st.just(math.nan), st.just(ABSENT)),
)
_pairs = st.lists(st.tuples(_cell, _cell), min_size=1, max_size=40)


def _arrays(cells: Any) -> tuple[Any, Any]:
    rewards, status = zip(*cells, strict=True)
    return np.array(rewards, np.float32), np.array(status, np.uint8)


@settings(max_examples=max(1, settings().max_examples // 2), deadline=None)
@given(_pairs, st.sampled_from([0.0, 0.25]), st.integers(1, 4))
@example([((math.nan, Status.CANCELLED), (math.nan, Status.ABSTAINED))], 0.0, 1)
def test_agreement_is_that_of_a_loop(pairs: Any, tolerance: float, pieces: int) -> None:
    agreement = Comparison(tolerance)
    moved: list[bool] = []
    for piece in np.array_split(np.arange(len(pairs)), pieces):
        chosen = [pairs[place] for place in piece]
        if chosen:
            old, new = _arrays([a for a, _ in chosen]), _arrays([b for _, b in chosen])
            moved += agreement.add(old[0], new[0], old[1], new[1]).tolist()

    compared = answered = failed = 0
    numbers = []
    for ((x, was), (y, now)), apart in zip(pairs, moved, strict=True):
        if ABSENT in (was, now):
            assert not apart
            continue
        compared += 1
        x, y = float(np.float32(x)), float(np.float32(y))
        if not math.isnan(x) and not math.isnan(y):
            numbers.append((x, y))
            close = abs(x - y) <= tolerance
        else:
            close = math.isnan(x) and math.isnan(y) and (was in FAILED) == (now in FAILED)
        assert apart == (not close)
        answered += was in FAILED and now not in FAILED
        failed += now in FAILED and was not in FAILED
    assert (agreement.compared, agreement.moved) == (compared, sum(moved))
    assert (agreement.failures_to_answers, agreement.answers_to_failures) == (answered, failed)
    means = tuple(agreement.to_dict()["mean"].values())
    if numbers:
        assert means == pytest.approx(np.mean(numbers, axis=0), abs=1e-9)
    else:
        assert means == (None, None)


_groups = st.integers(1, 5).flatmap(
    lambda size: st.lists(
        st.lists(
            st.tuples(st.one_of(_value, st.just(math.nan)), st.one_of(_value, st.just(math.nan))),
            min_size=size,
            max_size=size,
        ),
        min_size=1,
        max_size=6,
    )
)


@settings(max_examples=max(1, settings().max_examples // 2), deadline=None)
@given(_groups)
def test_ranks_and_advantages_are_those_of_a_loop(groups: Any) -> None:
    values = np.array(groups, np.float32)
    old, new = values[:, :, 0], values[:, :, 1]
    found = Comparison()
    for group in range(len(old)):
        found.add_groups(old[group], new[group], old.shape[1])
    change = found.to_dict()["advantages"]

    if old.shape[1] > 1:
        pairs = [(_ranks(a), _ranks(b)) for a, b in zip(old, new, strict=True)]
        different = [[x != y for x, y in zip(a, b, strict=True)] for a, b in pairs]
        assert found.groups == len(groups)
        assert found.groups_changed == sum(map(any, different))
        assert found.best_changed == sum(_best(a) != _best(b) for a, b in zip(old, new, strict=True))
    before, after = _advantages(old), _advantages(new)
    assert found.samples == old.size
    assert change["mean_change"] == pytest.approx(np.abs(after - before).mean(), abs=1e-4)
    clear = (np.abs(before) > 1e-4) & (np.abs(after) > 1e-4)
    assert found.flipped >= int((np.sign(before) != np.sign(after))[clear].sum())


def _ranks(values: Any) -> list[float | None]:
    """None where there is no value."""
    present = [float(value) for value in values if not np.isnan(value)]
    ordered = sorted(present, reverse=True)
    places = {value: [i + 1 for i, other in enumerate(ordered) if other == value] for value in present}
    return [None if np.isnan(value) else sum(places[float(value)]) / len(places[float(value)]) for value in values]


def _best(values: Any) -> set[int]:
    present = [float(value) for value in values if not np.isnan(value)]
    return {place for place, value in enumerate(values) if present and value == max(present)}


def _advantages(totals: Any) -> Any:
    """TRL's advantages: (r - mean) / (std + 1e-4), 0 for a sample without a total."""
    found = np.zeros(totals.shape)
    for place, group in enumerate(totals.astype(np.float64)):
        there = ~np.isnan(group)
        if not there.any():
            continue
        centred = group - group[there].mean()
        if len(group) == 1:
            centred = centred / 1e-4
        elif there.sum() < 2:
            continue
        else:
            centred = centred / (group[there].std(ddof=1) + 1e-4)
        found[place][there] = centred[there]
    return found


@pytest.mark.parametrize(
    ("then", "now", "differ"), [("sum", "sum", 0), ("drop", "drop", 0), ("drop", "sum", 1), ("sum", "drop", 1)]
)
def test_totals_of_then_are_those_of_the_dispatcher_of_then(tmp_path: Path, then: str, now: Any, differ: int) -> None:
    """A function fails on one sample of four, then and now."""
    rows = [
        row(sample=sample, function=name, value=1.0, prompt="p", completion=str(sample))
        for sample in range(4)
        for name in ("one", "broken")
    ]
    rows[-1] |= {"status": "error", "value": None, "reward": None, "reason": "ValueError: no"}
    journal = write_journal(tmp_path / "j", rows, texts=True, dispatcher={"incomplete": then})

    def broken(completion: str) -> float:
        if completion == "3":
            raise ValueError("no")
        return 1.0

    functions = [reward(lambda text: 1.0, name="one", lane="thread"), reward(broken, name="broken", lane="thread")]
    dispatcher = Dispatcher(functions, incomplete=now, max_failure_rate=1.0)
    found = guerdon.replay(journal, dispatcher)
    assert found.differences == 0
    assert found.total["compared"] > 0
    assert found.total["moved"] == differ
