"""Numbers that were given as options."""

from __future__ import annotations

import math
from numbers import Real


def as_float(value: Real) -> float:
    """The number as a float; an integer that no float can hold is infinite, so that it is refused like inf."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
