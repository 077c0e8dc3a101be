"""Reward functions that hang, crash or misbehave as their completion says. Workers import this
module."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.processes import descriptors


def obey(completion: str) -> float:
    verb, _, rest = completion.partition(":")
    if verb == "loop":
        while True:
            pass
    if verb == "regex":
        re.match(r"(a+)+$", "a" * 34 + "b")  # minutes
    if verb == "sympy":
        import sympy

        x = sympy.Symbol("x")
        while True:  # each comparison alone takes longer than a step of it can be interrupted
            sympy.simplify(sum(sympy.sin(x * n) ** n for n in range(2, 60)) - 1).equals(0)
    return float(rest)


def square(number: int) -> int:
    return number * number


def pooled(completion: str) -> float:
    with ProcessPoolExecutor(2) as pool:
        return float(sum(pool.map(square, range(int(completion)))))


class ScaledReward:
    """A callable object with a bound method to use as well."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, completion: str) -> float:
        return self.scale * float(completion)

    def plus_one(self, completion: str) -> float:
        return self.scale * float(completion) + 1


def parse_math(text: str, answer: str) -> float:
    """Plain math_verify with its own timeouts, which need SIGALRM on a main thread."""
    import math_verify

    wanted, given = (math_verify.parse(each, parsing_timeout=60) for each in (answer, text))
    return float(math_verify.verify(wanted, given, timeout_seconds=60))


def environment(completion: str) -> dict[str, Any]:
    import signal
    import sys
    import threading

    return {
        "score": 1.0,
        "main": threading.current_thread() is threading.main_thread(),
        "masked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "stdin": sys.stdin.read(),
        "worker_modules": [name for name in sys.path if name.endswith("_worker")],
        "guerdon": "guerdon" in sys.modules,
        "fds": sorted(descriptors().values()),
    }
