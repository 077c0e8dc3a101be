"""The cache folders of a dispatcher: what its functions agree on, and their form for the engine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from guerdon._functions.cache.versions import version_of
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError

__all__ = ["check_folders", "folder_config"]


def check_folders(specs: Iterable[FunctionSpec]) -> None:
    """Refuses functions whose outcomes can't be kept.

    Raises:
        RegistrationError: A function has no version, or two give a folder different sizes.
    """
    sizes: dict[str, tuple[str, int]] = {}
    for spec in specs:
        if spec.cache is None:
            continue
        version_of(spec)
        other, size = sizes.setdefault(spec.cache.folder, (spec.name, spec.cache.size))
        if size != spec.cache.size:
            raise RegistrationError(
                f"reward functions {other!r} and {spec.name!r} share the folder {spec.cache.folder!r} and give it different sizes: "
                f"{size} and {spec.cache.size} bytes. Give both the same Cache(size=)."
            )


def folder_config(spec: FunctionSpec) -> dict[str, Any] | None:
    """The folder of a function for the engine, with the function's version; None without one."""
    if spec.cache is None:
        return None
    return {"folder": os.fsencode(spec.cache.folder), "size": spec.cache.size, "version": version_of(spec)}
