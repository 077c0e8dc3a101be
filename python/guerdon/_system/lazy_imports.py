"""Public names of a package that are imported when first used, so that importing the package loads
next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["names"]


def names(
    scope: dict[str, Any], homes: Mapping[str, str | None], package: str | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    Args:
        scope: Its ``globals()``; what was used once is put there.
        homes: The module below it in which each public name is, None for a module itself.
        package: Its name where it may be loaded under another.
    """
    own: str = package or scope["__name__"]

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        from importlib import import_module

        home = homes[name]
        value = import_module(f"{own}.{name}") if home is None else getattr(import_module(f"{own}.{home}"), name)
        scope[name] = value
        return value

    return find, lambda: sorted({*scope, *homes})
