"""The cache folders of a dispatcher: what its functions agree on, and what the engine opens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from guerdon._functions.cache.versions import version_of
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._native import OutcomeStore

__all__ = ["check_folders", "open_caches"]


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


def open_caches(specs: Iterable[FunctionSpec]) -> dict[str, tuple[OutcomeStore, bytes]]:
    """The folder of each function that has one, opened, and the function's version, by name."""
    from guerdon._native import OutcomeStore

    folders: dict[str, OutcomeStore] = {}
    caches = {}
    for spec in specs:
        if spec.cache is not None:
            folder = spec.cache.folder
            if folder not in folders:
                folders[folder] = OutcomeStore(folder, spec.cache.size)
            caches[spec.name] = folders[folder], version_of(spec)
    return caches
