"""Warnings that are of a reward, not of one sample: each once a process."""

from __future__ import annotations

import importlib.util
import logging
import re
from typing import Final

from guerdon.rewards.code.trusted.compare import printable

__all__ = ["warn_of_module", "warn_once"]

_MISSING: Final = re.compile(r"No module named '([A-Za-z_][A-Za-z0-9_]*)")
_warned: set[object] = set()


def warn_once(key: object, text: str, *values: object) -> None:
    """Log a warning, unless one with this key was logged."""
    if key not in _warned:
        _warned.add(key)
        shown = (printable(value) if isinstance(value, str) else value for value in values)
        logging.getLogger("guerdon").warning(text, *shown)


def warn_of_module(fault: str) -> None:
    """Warn where a program lacks a module that this process can import."""
    match = _MISSING.search(fault)
    if match is None:
        return
    name = match[1]
    try:
        found = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return
    if found:
        warn_once(
            ("module", name),
            "code_reward: programs can't import %s, which this process can: they score 0. Give it with modules=[%r]",
            name,
            name,
        )
