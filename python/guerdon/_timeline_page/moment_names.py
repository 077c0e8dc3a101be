"""What moments of a trace are called where people read them; files keep the engine's names."""

from __future__ import annotations

from typing import Final

__all__ = ["shown"]

_SHOWN: Final = {"gave calls back": "calls returned to the queue"}


def shown(name: str) -> str:
    """The name for people."""
    return _SHOWN.get(name, name)
