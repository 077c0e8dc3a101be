"""Warnings about a reward, not about one sample: each once per process."""

from __future__ import annotations

import importlib.util
import logging
import re
from contextlib import suppress
from typing import Final

from guerdon.rewards.code.trusted.compare import printable

__all__ = ["warn_of_compare", "warn_of_extract", "warn_of_module", "warn_once"]

_MISSING: Final = re.compile(r"No module named '([A-Za-z_][A-Za-z0-9_]*)")
_warned: set[object] = set()


def warn_once(key: object, text: str, *values: object) -> None:
    """Log a warning, unless one with this key was logged."""
    if key not in _warned:
        _warned.add(key)
        shown = (printable(value) if isinstance(value, str) else value for value in values)
        logging.getLogger("guerdon").warning(text, *shown)


def warn_of_extract(key: object, why: str) -> None:
    """Warn that a function ``extract=`` failed or hung."""
    text = "code_reward: %s. Such a completion scores 0; if it is right, mend the function"
    warn_once(("extract", key), text, why)


def warn_of_compare(why: str) -> None:
    """Warn that a function ``compare=`` failed or hung."""
    warn_once("compare", "code_reward: compare %s on what a program gave, which scores 0", why)


def warn_of_module(fault: str) -> None:
    """Warn where a program lacks a module that this process can import."""
    for name in _MISSING.findall(fault):
        with suppress(ImportError, ValueError):
            if importlib.util.find_spec(name) is not None:
                warn_once(
                    ("module", name),
                    "code_reward: programs can't import %s, which this process can: they score 0. Give it with modules=[%r]",
                    name,
                    name,
                )
