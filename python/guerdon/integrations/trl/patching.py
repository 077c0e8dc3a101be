"""Other values for attributes of an object, for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from guerdon.errors import GuerdonError
from guerdon.integrations.trl import trl_version


@contextmanager
def patched(target: object, values: Mapping[str, Any]) -> Iterator[None]:
    """Sets attributes of `target`, and puts the earlier values back at the end."""
    try:
        before = {name: getattr(target, name) for name in values}
    except AttributeError as error:
        raise GuerdonError(
            f"{type(target).__name__} has no {error.name}, for which Guerdon's own trainers set another value for a while: "
            f"{trl_version.advice()}"
        ) from error
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)
