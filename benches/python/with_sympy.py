"""A function whose module imports sympy and math_verify."""

from __future__ import annotations

import math_verify
import sympy


def first(completion: str) -> float:
    return float(sympy.Integer(1)) if math_verify.verify else 0.0
