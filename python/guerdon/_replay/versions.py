"""Which versions of the functions score now: as a journal writes them."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon._journal.versions import source_version
from guerdon._registration.spec import FunctionSpec

__all__ = ["versions_of"]


def versions_of(specs: Sequence[FunctionSpec]) -> dict[str, str]:
    """The version of each function, 16 hex digits; "" where none can be told."""
    return {spec.name: source_version(spec) for spec in specs}
