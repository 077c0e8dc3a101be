"""Means, deviations and correlations that add up over record batches (Chan, Golub and LeVeque).

Sums of squares are about the mean so far, never about zero or a guess: close numbers far from zero
keep their digits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from guerdon._insight.report.rows import Floats, Integers

__all__ = ["Moments", "PairMoments", "correlations"]

_ROUNDING: Final = 64 * np.finfo(np.float64).eps
"""Share of a number's size by which a sum of many rounds a constant."""

_FEWEST: Final = 3


class Moments:
    """Moments of numbers in cells, such as function and bucket; all arrays have the shape of the
    cells.

    Attributes:
        count: How many.
        mean: Their mean; 0 where there is none.
        squares: The sum of their squared deviations from it.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count: Floats = np.zeros(shape)
        self.mean: Floats = np.zeros(shape)
        self.squares: Floats = np.zeros(shape)

    def add(self, cell: Integers, values: Floats) -> None:
        """Add a number to each of these cells, which are numbered in order."""
        size, shape = self.count.size, self.count.shape
        count = np.bincount(cell, minlength=size).astype(np.float64)
        some = np.maximum(count, 1)
        mean = np.bincount(cell, values, size) / some
        apart = values - mean[cell]
        # The rest of the mean's rounding.
        rest = np.bincount(cell, apart, size) / some
        squares = np.bincount(cell, apart * apart, size) - rest * rest * count
        self._merge(count.reshape(shape), (mean + rest).reshape(shape), squares.reshape(shape))

    def _merge(self, count: Floats, mean: Floats, squares: Floats) -> None:
        both = np.maximum(self.count + count, 1)
        apart = mean - self.mean
        self.squares += squares + apart * apart * self.count * count / both
        self.mean += apart * count / both
        self.count += count

    def over(self, where: Any = ...) -> tuple[float, float]:
        """Mean and standard deviation (of a sample) of the numbers in these cells together; NaN
        where unknown."""
        count, mean, squares = (np.ravel(each[where]) for each in (self.count, self.mean, self.squares))
        total = count.sum()
        if not total:
            return np.nan, np.nan
        # Twice, for the digits of numbers far from zero.
        first = mean[count > 0][0]
        middle = first + (count * (mean - first)).sum() / total
        variance = (squares + count * (mean - middle) ** 2).sum() / (total - 1) if total > 1 else np.nan
        if variance <= (_ROUNDING * middle) ** 2:
            variance = 0.0
        return float(middle), float(np.sqrt(variance))


class PairMoments:
    """Moments of each pair of columns, over the rows that have both.

    Attributes:
        sums: The number of rows, the means of one and the other, their sums of squared deviations,
            and the sum of the products of these, ``[6, M, M]``.
    """

    def __init__(self, columns: int) -> None:
        self.sums: Floats = np.zeros((6, columns, columns))

    def add(self, values: Floats) -> None:
        """Add rows.

        Args:
            values: A row each, ``[rows, M]`` or fewer columns; NaN where it has none.
        """
        found = np.zeros_like(self.sums)
        known = np.isfinite(values)
        columns = np.flatnonzero(known.any(axis=0))
        if known[:, columns].all():
            chosen, apart = _centered(values[:, columns])
            products = apart.T @ apart
            size = len(columns)
            squares = np.diag(products)
            sides = [
                np.broadcast_to(each, (size, size)) for each in (chosen[:, None], chosen, squares[:, None], squares)
            ]
            block = np.stack([np.full((size, size), float(len(values))), *sides, products])
            found[:, columns[:, None], columns] = block
        else:
            for place, one in enumerate(columns.tolist()):
                for other in columns[place:].tolist():
                    pair = _pair(values, known[:, one] & known[:, other], one, other)
                    found[:, one, other] = pair
                    found[:, other, one] = pair[[0, 2, 1, 4, 3, 5]]
        self.sums = _merged(self.sums, found)


def correlations(sums: Floats) -> Floats:
    """Pearson's r of each pair, from the sums of `PairMoments`; NaN where one is constant, or where
    there are fewer rows than `_FEWEST`."""
    count, mean_x, mean_y, xx, yy, xy = sums
    constant = (xx <= count * (_ROUNDING * mean_x) ** 2) | (yy <= count * (_ROUNDING * mean_y) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(constant | (count < _FEWEST), np.nan, xy / (np.sqrt(xx) * np.sqrt(yy)))
    clipped: Floats = np.clip(r, -1, 1)
    # Rounding must not part a column from itself.
    np.fill_diagonal(clipped, np.where(np.isnan(clipped.diagonal()), np.nan, 1.0))
    return clipped


def _pair(values: Floats, both: NDArray[np.bool_], one: int, other: int) -> Floats:
    if not both.any():
        return np.zeros(6)
    (x, y), apart = _centered(values[both][:, [one, other]])
    (xx, xy), (_, yy) = apart.T @ apart
    return np.array([both.sum(), x, y, xx, yy, xy])


def _centered(values: Floats) -> tuple[Floats, Floats]:
    """The mean of each column, and the deviations from it; the mean of these is the missing
    part."""
    mean = values.mean(axis=0)
    apart = values - mean
    rest = apart.mean(axis=0)
    return mean + rest, apart - rest


def _merged(one: Floats, other: Floats) -> Floats:
    """The sums of two sets of rows together."""
    count = one[0] + other[0]
    some = np.maximum(count, 1)
    x, y = other[1] - one[1], other[2] - one[2]
    weight, share = one[0] * other[0] / some, other[0] / some
    return np.stack(
        [
            count,
            one[1] + x * share,
            one[2] + y * share,
            one[3] + other[3] + x * x * weight,
            one[4] + other[4] + y * y * weight,
            one[5] + other[5] + x * y * weight,
        ]
    )
