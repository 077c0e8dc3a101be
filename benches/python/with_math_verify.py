"""`uninterruptible`, in a module that imports the packages of a math reward."""

import math_verify  # noqa: F401 - loaded for its weight

from benches.python.uninterruptible import hanging as _hanging


def hanging(page: str, place: int) -> float:
    return _hanging(page, place)
