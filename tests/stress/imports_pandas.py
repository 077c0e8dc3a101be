"""A module that imports pandas, and with it pyarrow."""

from __future__ import annotations

import pandas


def length(completion: str) -> float:
    return float(pandas.Series([completion]).str.len().sum())
