"""Return values of every kind, made where the function runs; each has a name that a completion can
hold."""

from __future__ import annotations

import asyncio
import collections
import decimal
import fractions
import itertools
import math
from collections.abc import Callable
from typing import Any

from guerdon import StatefulReward


class FloatLike(float):
    pass


class Unhelpful:
    """Raises whatever it is asked."""

    def __float__(self) -> float:
        raise ValueError("no float")

    def __repr__(self) -> str:
        raise ValueError("no repr")


async def coroutine(value: Any = 0.25) -> Any:
    await asyncio.sleep(0)
    return value


def numpy(kind: str, *args: Any) -> Any:
    import numpy as np

    return getattr(np, kind)(*args)


def masked() -> Any:
    import numpy as np

    return np.ma.masked


def torch(*args: Any) -> Any:
    import torch

    return torch.tensor(*args)


# What a sample may return, and the reward that it is; None: it abstains.
REWARDS: dict[str, tuple[Callable[[], Any], float | None]] = {
    "int": (lambda: 3, 3.0),
    "bool": (lambda: True, 1.0),
    "float": (lambda: 0.1, 0.1),
    "negative zero": (lambda: -0.0, -0.0),
    "the largest": (lambda: 3.4028234663852886e38, 3.4028234663852886e38),
    "the smallest": (lambda: -3.4028234663852886e38, -3.4028234663852886e38),
    "tiny": (lambda: 1e-46, 0.0),
    "false": (lambda: False, 0.0),
    "a float's subclass": (lambda: FloatLike(0.25), 0.25),
    "decimal": (lambda: decimal.Decimal("0.5"), 0.5),
    "fraction": (lambda: fractions.Fraction(1, 4), 0.25),
    "numpy float16": (lambda: numpy("float16", 0.5), 0.5),
    "numpy float32": (lambda: numpy("float32", 0.5), 0.5),
    "numpy float64": (lambda: numpy("float64", 0.1), 0.1),
    "numpy int64": (lambda: numpy("int64", -7), -7.0),
    "numpy uint8": (lambda: numpy("uint8", 3), 3.0),
    "numpy bool": (lambda: numpy("bool_", True), 1.0),
    "numpy 0-d": (lambda: numpy("array", 2.5), 2.5),
    "numpy 0-d of an int": (lambda: numpy("array", 2), 2.0),
    "none": (lambda: None, None),
}
TENSORS: dict[str, tuple[Callable[[], Any], float | None]] = {
    "tensor": (lambda: torch(1.5), 1.5),
    "tensor of an int": (lambda: torch(4), 4.0),
    "tensor of a bool": (lambda: torch(True), 1.0),
    "tensor with a gradient": (lambda: torch(0.5).bfloat16().requires_grad_(), 0.5),
}
REFUSED_TENSORS: dict[str, tuple[Callable[[], Any], str]] = {
    "tensor 1-d": (lambda: torch([1.0]), r"torch\.Tensor of shape"),
    "tensor 2-d": (lambda: torch([[0.0, 0.0]]), r"torch\.Tensor of shape"),
    "complex tensor": (lambda: torch(1j), r"torch\.Tensor of shape"),
}
# Only where one call is one sample.
SINGLE: dict[str, tuple[Callable[[], Any], float | None]] = {
    "score": (lambda: {"score": 0.5}, 0.5),
    "score and more": (lambda: {"score": 2, "why": "because", 3: [1, 2]}, 2.0),
    "score of numpy": (lambda: {"score": numpy("float32", 1)}, 1.0),
    "score none": (lambda: {"score": None, "why": "unsure"}, None),
}
# What is refused, with words that the reason must have.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "str": (lambda: "0.5", r"a str \('0\.5'\) is not a reward"),
    "bytes": (lambda: b"1", "bytes"),
    "complex": (lambda: 1j, "complex"),
    "nan": (lambda: math.nan, "(nan|NaN).* is not a reward"),
    "inf": (lambda: -math.inf, "-inf"),
    "beyond float32": (lambda: 1e39, "float32"),
    "just beyond float32": (lambda: 3.402823466385289e38, "float32"),
    "beyond float": (lambda: 10**400, "beyond float32"),
    "numpy nan": (lambda: numpy("float32", math.nan), "nan|NaN"),
    "numpy complex": (lambda: numpy("complex64", 1), "numpy.complex64"),
    "numpy text": (lambda: numpy("str_", "x"), "is not a reward"),
    "numpy 0-d of a text": (lambda: numpy("array", "x"), "numpy.ndarray"),
    "numpy masked": (masked, "numpy.ma"),
    "numpy 1-d": (lambda: numpy("ones", 1), r"numpy\.ndarray of shape \(1,\)"),
    "list": (lambda: [1.0], "list"),
    "empty tuple": (tuple, "a tuple"),
    "tuple": (lambda: (1.0,), "tuple"),
    "decimal nan": (lambda: decimal.Decimal("sNaN"), "decimal.Decimal"),
    "decimal beyond float32": (lambda: decimal.Decimal("1e999"), "beyond float32"),
    "fraction beyond float": (lambda: fractions.Fraction(10**400), "beyond float32"),
    "empty dict": (dict, "without 'score'|give a number"),
    "dict in a dict": (lambda: {"score": {"score": 1}}, "dict"),
    "set": (lambda: {1.0}, "set"),
    "object": (object, "object"),
    "class": (lambda: float, "type"),
    "function": (lambda: coroutine, "function"),
    "generator": (lambda: (x for x in [1.0]), "generator"),
    "unhelpful": (Unhelpful, "Unhelpful"),
    "dict without score": (lambda: {"reward": 1.0}, r"a dict .*'reward'"),
    "dict with a bad score": (lambda: {"score": "high"}, r"a str \('high'\)|a dict \(.*'high'"),
    "huge text": (lambda: "x" * 3_000_000, r"a str \('xxxx.*…\) is not a reward"),
}


def made(name: str) -> Any:
    """A fresh value of the kind `name`."""
    for table in (REWARDS, TENSORS, SINGLE, REFUSED, REFUSED_TENSORS):
        if name in table:
            return table[name][0]()
    raise KeyError(name)


# What a group or batch function may return for its completions, or must not; made from their
# number.
LISTS: dict[str, Callable[[int], Any]] = {
    "list": lambda n: [1.0] * n,
    "tuple": lambda n: (1.0,) * n,
    "array": lambda n: numpy("ones", n),
    "integers": lambda n: numpy("ones", n, "int64"),
    "generator": lambda n: (1.0 for _ in range(n)),
    "map": lambda n: map(float, ["1"] * n),
    "deque": lambda n: collections.deque([1.0] * n),
}
BAD_LISTS: dict[str, tuple[Callable[[int], Any], str]] = {
    "number": (lambda n: 1.0, "float"),
    "none": (lambda n: None, "None"),
    "str": (lambda n: "x" * n, "str"),
    "dict": (lambda n: {"score": [1.0] * n}, "dict"),
    "set": (lambda n: {float(i) for i in range(n)}, "set"),
    "short": (lambda n: [1.0] * (n - 1), r"\d rewards were returned for \d"),
    "long": (lambda n: [1.0] * (n + 1), r"\d rewards were returned for \d"),
    "empty": (lambda n: [], "0 rewards"),
    "endless": (lambda n: itertools.count(), r"more than \d rewards were returned for \d completions"),
    "2-d": (lambda n: numpy("ones", (n, 1)), "shape"),
    "0-d": (lambda n: numpy("array", 1.0), "shape"),
}


def sample(completion: str) -> Any:
    return made(completion)


def elements(completions: list[str], **kwargs: Any) -> Any:
    return [made(completion) for completion in completions]


async def async_elements(completions: list[str], **kwargs: Any) -> Any:
    return elements(completions)


class Finishing(StatefulReward):
    """Gives every sample a score, and the odd value when its group is finished."""

    def score(self, completion: str) -> float:
        return 1.0

    def finish_group(self, scores: list[float | None], completions: list[str]) -> Any:
        return elements(completions)


def whole(completions: list[str], **kwargs: Any) -> Any:
    """What the kind of list that the first completion names makes of all of them."""
    make = LISTS.get(completions[0]) or BAD_LISTS[completions[0]][0]
    return make(len(completions))


async def async_whole(completions: list[str], **kwargs: Any) -> Any:
    return whole(completions)


class FinishingWhole(Finishing):
    def finish_group(self, scores: list[float | None], completions: list[str]) -> Any:
        return whole(completions)


def later(completion: str) -> Any:
    return coroutine(float(completion))


def all_later(completions: list[str]) -> Any:
    return coroutine([float(completion) for completion in completions])


async def twice(completion: str) -> Any:
    return coroutine(float(completion))
