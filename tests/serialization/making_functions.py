"""Functions as scripts and notebooks define them, and refusals."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

from guerdon._functions.build import spec_of
from guerdon._functions.serialization.serialized_functions import check_serializable
from guerdon.errors import SerializationError

LOCK = threading.Lock()


def holds_lock(completion: str) -> float:
    with LOCK:
        return 1.0


class Scorer:
    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __call__(self, completion: str) -> float:
        return len(completion) * self.factor

    def method(self, completion: str) -> float:
        return len(completion) * self.factor

    @staticmethod
    def static(completion: str) -> float:
        return 7.0


def by_value(source: str, name: str = "score", **values: Any) -> Any:
    """A function of ``__main__``, as a script or a notebook defines it."""
    scope: dict[str, Any] = {"__name__": "__main__", **values}
    exec(textwrap.dedent(source), scope)
    return scope[name]


def refused(item: Any) -> str:
    with pytest.raises(SerializationError) as caught:
        check_serializable(spec_of(item))
    message = str(caught.value)
    assert "can't be sent to a worker process" in message
    assert 'setup() of a guerdon.StatefulReward, or give lane="thread"' in message
    return message


def closes_over(value: Any) -> Callable[[str], float]:
    return lambda completion: float(bool(value))
