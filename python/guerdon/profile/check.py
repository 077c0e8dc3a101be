"""A check: an id, and a function of a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from guerdon.profile.finding import Finding
from guerdon.profile.subject import Subject

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        id: What findings call it.
        run: Finds: nothing where all is well.
    """

    id: str
    run: Callable[[Subject], Iterable[Finding]]
