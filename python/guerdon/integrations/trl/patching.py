"""Other values for attributes of an object, for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(target: object, values: Mapping[str, Any]) -> Iterator[None]:
    """Sets attributes of `target`, and puts the earlier values back at the end."""
    before = {name: getattr(target, name) for name in values}
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)
