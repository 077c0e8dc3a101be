"""Values of options that several commands have: each is read, and refused, in one way."""

from __future__ import annotations

import argparse

__all__ = ["at_least_zero", "count", "mapping", "positive", "seconds", "steps"]


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def count(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0)


def seconds(text: str) -> float:
    """A number above 0."""
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return number


def at_least_zero(text: str) -> float:
    """A number of at least 0."""
    number = _number(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 0")
    return number


def mapping(text: str) -> tuple[str, str]:
    """``COLUMN=FIELD``."""
    column, equals, field = text.partition("=")
    if not (column and equals and field):
        raise argparse.ArgumentTypeError(f"{text!r}: expected COLUMN=FIELD, as in answer=ground_truth")
    return column, field


def steps(text: str) -> tuple[int | None, int | None]:
    """The first and the last of ``A:B``, ``A:``, ``:B`` or one step; None for the end that is
    open."""
    first, colon, last = text.partition(":")
    try:
        bounds = (int(first) if first else None), (int(last) if last else None)
    except ValueError:
        bounds = None, None
    if not colon:
        bounds = bounds[0], bounds[0]
    if bounds == (None, None) or (None not in bounds and bounds[0] > bounds[1]):  # type: ignore[operator]
        raise argparse.ArgumentTypeError(f"{text!r}: expected A:B, A:, :B or one step, as in 100:200")
    return bounds


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least {least}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
