"""Numbers that were given as options."""

from __future__ import annotations

import math
from numbers import Real
from typing import Final

FLOAT32_MAX: Final = 3.4028234663852886e38

LONGEST: Final = 1e9
"""The longest time in seconds, some thirty years: the engine counts nanoseconds in 63 bits."""


def number(value: object) -> float:
    """`value` as a float, for a look at whether it lies in a range.

    What is no number, as True and False are none, is NaN and so in no range; an integer that no float can hold is
    infinite, so that it is refused like inf.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
