"""Functions as scripts and notebooks define them, and refusals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from guerdon._functions.build import spec_of
from guerdon._functions.serialization.serialized_functions import check_serializable
from guerdon.errors import SerializationError


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
