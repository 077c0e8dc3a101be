"""Values of options that several commands have: each is read, and refused, in one way."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = [
    "add_data",
    "add_failure_rate",
    "add_rewards",
    "add_workers",
    "at_least_zero",
    "count",
    "positive",
    "seconds",
    "steps",
]


def add_rewards(parser: argparse.ArgumentParser) -> None:
    """Add REWARDS."""
    parser.add_argument("rewards", metavar="REWARDS", help="file.py, module, or either with :a,b")


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add DATA, and the options that say which of its fields are what."""
    parser.add_argument("data", metavar="DATA", help="a JSONL, CSV or Parquet file, - for stdin")
    parser.add_argument(
        "--completion-field", metavar="FIELD", default="completion", help="field of the completion; default: completion"
    )
    parser.add_argument(
        "--prompt-field", metavar="FIELD", help="field of the prompt; default: prompt, if the rows have it"
    )
    parser.add_argument(
        "--map",
        metavar="COLUMN=FIELD",
        action="append",
        default=[],
        type=_mapping,
        help="the column COLUMN of the functions is the field FIELD of the rows (a.b for a nested field); repeatable",
    )
    parser.add_argument(
        "-n", "--num-generations", metavar="N", type=positive, help="completions per prompt in the data"
    )


def add_workers(parser: Any) -> None:
    """Add the number of worker processes."""
    parser.add_argument("--workers", metavar="N", type=positive, help="worker processes; default: one per usable core")


def add_failure_rate(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the share of failures that is allowed; `more` is what the command does with it."""
    parser.add_argument(
        "--max-failure-rate",
        metavar="X",
        type=float,
        help=f"allowed fraction of failed samples per function{more}; default 0.5",
    )


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


def _mapping(text: str) -> tuple[str, str]:
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
