"""Means, deviations and correlations that add up, against exact ones."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon._insight.report.moments import Moments, PairMoments, correlations

pd = pytest.importorskip("pandas")


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=60),
    far=st.sampled_from([0.0, 1.0, 1e6, -1e9]),
    scale=st.sampled_from([1.0, 1e-3, 1e3]),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_moments_keep_their_digits_far_from_zero(
    values: list[tuple[int, int]], far: float, scale: float, cuts: list[int]
) -> None:
    cells = np.array([cell for cell, _ in values])
    numbers = far + scale * np.array([float(number) for _, number in values])
    made = Moments((4,))
    for one, other in pairwise([0, *sorted(cuts), len(values)]):
        made.add(cells[one:other], numbers[one:other])
    for cell in range(4):
        mine = [Fraction(float(number)) for number in numbers[cells == cell]]
        assert made.count[cell] == len(mine)
        if len(mine) > 1:
            mean, std = made.over(cell)
            exact = sum(mine) / len(mine)
            variance = float(sum((each - exact) ** 2 for each in mine) / (len(mine) - 1))
            assert mean == pytest.approx(float(exact), rel=1e-15, abs=1e-12)
            assert std == pytest.approx(math.sqrt(variance), rel=1e-6, abs=1e-14 * max(1.0, abs(far)))
    assert made.over()[0] == pytest.approx(numbers.mean(), rel=1e-14, abs=1e-12)


def test_correlations_of_numbers_that_lie_close_together_are_exact() -> None:
    """A function's largest rewards are a million; most differ by little."""
    random = np.random.default_rng(0)
    x = np.where(np.arange(900) < 300, 1e6, 0.1 + 1e-7 * random.random(900))
    y = np.where(np.arange(900) < 300, np.nan, x + 1e-7 * random.random(900))
    values = np.stack([x, y, np.full(900, 0.1)], axis=1)
    pairs = PairMoments(3)
    for part in np.array_split(values, 7):
        pairs.add(part)
    r = correlations(pairs.sums)
    exact = pd.DataFrame(values[300:]).corr().to_numpy()
    assert r[0, 1] == pytest.approx(exact[0, 1], abs=1e-7)
    assert r[1, 0] == r[0, 1]
    assert 0.3 < r[0, 1] < 0.9
    assert np.isnan(r[:, 2]).all()
    assert r[0, 0] == r[1, 1] == 1
