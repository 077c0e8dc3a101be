"""Which versions of the functions score now: as a journal writes them."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon._functions.spec import FunctionSpec
from guerdon._insight.journal.versions import source_version

__all__ = ["versions_of"]


def versions_of(specs: Sequence[FunctionSpec]) -> dict[str, str]:
    """The version of each function, 16 hex digits; "" where none can be told."""
    return {spec.name: source_version(spec) for spec in specs}
