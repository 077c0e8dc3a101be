"""Scores of math-verify for a gold answer and an answer; runs in a worker.

- The calls and the timeouts are those of TRL's ``accuracy_reward`` and of math-verify's defaults.
- math-verify is imported when it is first asked: who never needs it needn't have it.
- It does not get answers that it can't parse in its time: its own answer is then that they differ.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from inspect import Parameter, Signature
from itertools import accumulate
from keyword import iskeyword
from numbers import Number
from typing import Any, Final

from guerdon._native import math_decision
from guerdon._system.extras import pip_install
from guerdon.errors import DataError
from guerdon.rewards.math.lenient import prepared
from guerdon.rewards.math.plain_gold import plain_score, unsigned, warn_unread

__all__ = [
    "PARSE_S",
    "MathSample",
    "accuracy",
    "load",
    "missing",
    "native_score",
    "package_missing",
    "score",
]

# Seconds, those of TRL; math-verify's own times are shorter in `parse`, where a timeout is a [].
PARSE_S: Final = 10
_VERIFY_S: Final = 5
_BOXES: Final = re.compile(r"\\boxed\{([0-9()\[\]+\-*/ ]*)\}")
_DEEPEST: Final = 200
_NOT_INSTALLED: Final = f"math-verify, which is not installed: `{pip_install('math')}`"


def score(gold: str, answer: str, *, reward: bool) -> float | None:
    """1.0 or 0.0; None where the gold text has no answer in it and TRL's reward abstains.

    Args:
        reward: As ``accuracy_reward`` reads both; else as math-verify does by default.

    Raises:
        ImportError: math-verify is not installed.
    """
    parse, verify, box = _loaded()
    # Alarms are for the main thread alone; elsewhere the call's own timeout must do.
    on_main = threading.current_thread() is threading.main_thread()
    parse_s, verify_s = (PARSE_S, _VERIFY_S) if on_main else (None, None)
    parsed_gold = parse(gold, parsing_timeout=parse_s)
    if not reward:
        return float(verify(parsed_gold, parse(answer, parsing_timeout=parse_s), timeout_seconds=verify_s))
    if not parsed_gold:
        return None
    if _is_beyond_parsing(answer) and gold.count("(") + gold.count("[") < _DEEPEST:
        return 0.0
    parsed = parse(answer, extraction_config=[box], extraction_mode="first_match", parsing_timeout=parse_s)
    return float(verify(parsed_gold, parsed, timeout_seconds=verify_s))


def _is_beyond_parsing(answer: str) -> bool:
    """Returns whether the answer is a box of numbers and parentheses that are too deep.

    math-verify parses thirty levels in some seconds, and each ten more take twice as long; what it
    has no parse of equals no gold answer but the same text. An answer with letters or braces, some
    of which math-verify leaves out before it parses, isn't judged here.
    """
    boxes = _BOXES.findall(answer) if answer.count("\\boxed") == 1 else []
    levels = accumulate(1 if one in "([" else -1 if one in ")]" else 0 for one in "".join(boxes))
    return max(levels, default=0) >= _DEEPEST


def missing() -> str | None:
    """Why math-verify can't be asked; None if it is there."""
    if find_spec("math_verify") is not None:
        return None
    return f"this pair needs {_NOT_INSTALLED}. Numbers, fractions, letters and equal texts are compared without it."


def package_missing() -> str | None:
    """Why not all pairs can be compared; None if they can."""
    return None if missing() is None else f"some pairs need {_NOT_INSTALLED}."


def load() -> None:
    """Imports math-verify, which is else done by the first pair.

    Raises:
        ImportError: It is not installed.
    """
    _loaded()


@cache
def _loaded() -> tuple[Any, Any, Any]:
    """``parse``, ``verify`` and how TRL has answers read."""
    why = missing()
    if why is not None:
        raise ImportError(why)
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    box = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True),
        boxed_match_priority=0,
        try_extract_without_anchor=False,
    )
    return parse, verify, box


def is_missing(gold: object) -> bool:
    """Returns whether the gold answer is missing: None, or the NaN of a table's empty cell."""
    return gold is None or (isinstance(gold, Number) and bool(gold != gold))


def native_score(gold: object, answer: str, *, strict: bool, lenient: bool) -> float | tuple[str, str] | None:
    """The reward of one sample that is decided natively, else the two texts for math-verify.

    Args:
        lenient: More notations are read; see `prepared`.

    Raises:
        DataError: The gold answer is not a text.
    """
    if is_missing(gold):
        return None
    if not isinstance(gold, str):
        raise DataError(f"the gold answer is a {type(gold).__name__}, not a text: give str(…) of it")
    if lenient:
        found = prepared(gold, answer)
        if not isinstance(found, tuple):
            return found
        (gold, answer), strict = found, True
    gold = unsigned(gold)
    decision = math_decision(gold, answer, reward=True, strict=strict)
    if decision is None:
        return gold, answer
    return plain_score(gold, answer, strict=strict) if decision == "no gold" else float(decision)


def accuracy(gold: object, answer: str, *, strict: bool, lenient: bool = False) -> float | None:
    """The reward of one sample: decided natively, else by math-verify."""
    found = native_score(gold, answer, strict=strict, lenient=lenient)
    if not isinstance(found, tuple):
        return found
    value = score(*found, reward=True)
    return plain_score(*found, strict=strict or lenient) if value is None else value


class MathSample:
    """The callable of a worker: it takes a completion's text and its gold answer, which goes by the
    name of its column."""

    def __init__(self, column: str, *, strict: bool, lenient: bool = False) -> None:
        self.column = column
        self.strict = strict
        self.lenient = lenient
        if column.isidentifier() and not iskeyword(column):
            kind = Parameter.POSITIONAL_OR_KEYWORD
            self.__signature__ = Signature([Parameter("text", kind), Parameter(column, kind)])

    def __call__(self, text: str, *gold: object, **named: object) -> float | None:
        given = gold[0] if gold else named[self.column]
        value = accuracy(given, text, strict=self.strict, lenient=self.lenient)
        if value is None and isinstance(given, str):
            warn_unread(self.column, given)
        return value

    def __reduce__(self) -> tuple[Callable[[str, bool, bool], MathSample], tuple[str, bool, bool]]:
        return _unpickled, (self.column, self.strict, self.lenient)


def _unpickled(column: str, strict: bool, lenient: bool) -> MathSample:
    """The process that workers are forked from loads math-verify for all of them."""
    if "_guerdon_worker" in sys.modules and missing() is None:
        with suppress(ImportError):  # the samples that need it say why
            _loaded()
    return MathSample(column, strict=strict, lenient=lenient)
