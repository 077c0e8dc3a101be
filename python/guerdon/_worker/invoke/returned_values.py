"""Conversion of returned values to cells: reward, abstention or error.

- Only real numbers become rewards: finite, and within float32; Decimal and Fraction are such.
  Everything else is refused, with what to return instead.
- NumPy and torch are recognised, never imported.
- One bad element of a batch or group call fails its own cell; a wrong length or type the call.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from numbers import Number
from typing import Any

OK, ABSTAINED, TIMEOUT, ERROR, CRASHED, CANCELLED = range(6)

NAN = float("nan")
FLOAT32_MAX = float.fromhex("0x1.fffffep+127")

_SAMPLE_HINT = "return a number, None (abstain) or a dict with 'score'"
_ELEMENT_HINT = "give a number or None for each completion"
_LIST_HINT = "return a list with one number or None per completion"


class InvalidValue(Exception):
    """The returned value is not a reward; the message has the value and the expected ones."""


def to_cell(raw: object) -> tuple[int, float, dict[str, Any] | None]:
    """Status, value and extra fields of what one per-sample call returned.

    Raises:
        InvalidValue: It is neither a real number, nor None, nor a dict with such a ``"score"``.
    """
    if raw is None:
        return ABSTAINED, NAN, None
    if isinstance(raw, dict):
        if "score" not in raw:
            keys = short_repr(list(raw))
            raise InvalidValue(f"a dict without 'score' (its keys: {keys}) is not a reward: {_SAMPLE_HINT}")
        score = raw["score"]
        fields = {key: value for key, value in raw.items() if key != "score"} or None
        if score is None:
            return ABSTAINED, NAN, fields
        return OK, to_number(score), fields
    return OK, to_number(raw), None


def to_cells(raw: object, count: int) -> list[tuple[int, float, str | None]]:
    """(status, value, error) of each of the `count` completions of a call on lists.

    Raises:
        InvalidValue: It is not a list (tuple, 1-d array or tensor, generator, …) of `count`
            elements.
    """
    values = _listed(raw, count)
    if values is None:
        _dispose(raw)
        raise InvalidValue(f"{_described(raw)} is not a list of rewards: {_LIST_HINT}")
    if len(values) != count:
        more = "more than " if len(values) > count and not hasattr(raw, "__len__") else ""
        raise InvalidValue(
            f"{more}{len(values) - bool(more)} rewards were returned for {count} completions: {_LIST_HINT}"
        )
    return [_element(value) for value in values]


def to_number(raw: object, hint: str = _SAMPLE_HINT) -> float:
    """A real number as float.

    Raises:
        InvalidValue: It isn't one, or float32 can't hold it.
    """
    value = _as_float(raw)
    if value is None:
        _dispose(raw)
        raise InvalidValue(f"{_described(raw)} is not a reward: {hint}")
    if -FLOAT32_MAX <= value <= FLOAT32_MAX:  # false for NaN
        return value
    if value != value:
        raise InvalidValue(f"nan is not a reward: {hint}")
    raise InvalidValue(f"{value!r} is not a reward: it is beyond float32; return a finite number")


def to_single(raw: object) -> object:
    """Returns the element that a rowwise function returned for its row.

    Raises:
        InvalidValue: It is not a list of one.
    """
    values = _listed(raw, 1)
    if values is None or len(values) != 1:
        _dispose(raw)
        found = _described(raw) if values is None else f"a list of {len(values)}"
        raise InvalidValue(
            f"{found} was returned for one row: with rowwise=True return a list of one number or None for one row"
        )
    return values[0]


def _element(value: object) -> tuple[int, float, str | None]:
    if type(value) is float and -FLOAT32_MAX <= value <= FLOAT32_MAX:
        return OK, value, None
    if value is None:
        return ABSTAINED, NAN, None
    try:
        return OK, to_number(value, _ELEMENT_HINT), None
    except InvalidValue as error:
        return ERROR, NAN, f"{type(error).__name__}: {error}"


def _as_float(raw: object) -> float | None:
    if isinstance(raw, float):
        return float(raw)
    if isinstance(raw, int):
        try:
            return float(raw)
        except OverflowError:
            return float("inf") if raw > 0 else float("-inf")
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(raw, (numpy.generic, numpy.ndarray)):
        is_number = (
            raw.ndim == 0 and raw.dtype.kind in "fiub" and not getattr(raw, "mask", False)
        )  # a masked value is none
        return float(raw.item()) if is_number else None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(raw, torch.Tensor):
        return float(raw.item()) if raw.dim() == 0 and not raw.is_complex() else None
    if isinstance(raw, Number) and hasattr(type(raw), "__float__"):  # Decimal, Fraction, SymPy's
        try:
            return float(raw)  # type: ignore[arg-type]
        except OverflowError:
            return float("inf") if raw > 0 else float("-inf")  # type: ignore[operator]
        except (TypeError, ValueError):  # a signalling NaN
            return None
    return None


def _listed(raw: object, count: int) -> Sequence[object] | None:
    """Returns its elements; of an iterator at most one more than `count`."""
    if isinstance(raw, (list, tuple)):
        return raw
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(raw, numpy.ndarray):
        return list(raw.tolist()) if raw.ndim == 1 else None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(raw, torch.Tensor):
        return list(raw.tolist()) if raw.dim() == 1 else None
    if isinstance(raw, (str, bytes, bytearray, Mapping, AbstractSet)) or not hasattr(type(raw), "__iter__"):
        return None
    return list(islice(raw, count + 1))  # type: ignore[call-overload]


def _described(raw: object) -> str:
    """Returns the type and a short repr, or the shape of an array."""
    kind = type(raw)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    try:
        shape = getattr(raw, "shape", None)
        if shape is not None:
            return f"a {name} of shape {short_repr(tuple(shape))}"
    except Exception:  # a foreign object may raise anything here
        return f"a {name}"
    return f"a {name} ({short_repr(raw)})"


def short_repr(raw: object) -> str:
    """Returns a shortened repr, even if computing it raises."""
    import reprlib

    look = reprlib.Repr()  # goes through no more of a list or a text than is shown
    look.maxstring = look.maxother = look.maxlong = 200
    look.maxlist = look.maxtuple = look.maxdict = look.maxset = look.maxfrozenset = look.maxdeque = look.maxarray = 50
    try:
        text = look.repr(raw)
    except Exception:  # __repr__ is user code
        return "no repr"
    return text if len(text) <= 100 else text[:100] + "…"


def _dispose(raw: object) -> None:
    """Closes a coroutine that nothing will await, so that Python doesn't warn about it later."""
    if type(raw).__name__ == "coroutine":
        try:
            raw.close()  # type: ignore[attr-defined]  # compiled coroutines have no common base class
        except BaseException:  # user code may run in it; the call has failed already
            return
