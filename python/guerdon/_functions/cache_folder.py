"""`Cache`, and ``cache=`` and ``cache_version=`` of one function."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from os import PathLike
from typing import Final

from guerdon._system.units import EXPECTED_BYTES, as_bytes
from guerdon.errors import RegistrationError, with_known_options

__all__ = ["Cache", "CacheFolder", "checked_cache"]

_LEAST: Final = 1 << 20


@with_known_options
@dataclass(frozen=True)
class Cache:
    """A folder that keeps outcomes: ``cache=`` of reward functions and judges, which take a folder
    alone too.

    Attributes:
        folder: The folder; several functions, and runs, can share one.
        size: Bytes that it may take, as a number or a text like ``"10GiB"``; what was not used for
            longest goes first.

    Examples:
        >>> from guerdon import Cache, reward
        >>> @reward(cache=Cache("outcomes", size="10GiB"), cache_version="2")
        ... def length(completion: str) -> float:
        ...     return float(len(completion))
    """

    folder: str | PathLike[str]
    size: int | str = field(default="1GiB", kw_only=True)


@dataclass(frozen=True)
class CacheFolder:
    """Folder of a function's cached outcomes.

    Attributes:
        folder: Its absolute path.
        size: Bytes that it may take.
        version: What the user says of the function's version; None has it read from the function.
    """

    folder: str
    size: int
    version: str | None = None


def checked_cache(
    name: str, cache: object, version: object, *, pure: bool | None
) -> tuple[CacheFolder | None, bool | None]:
    """The folder, and whether the function is pure: one with a folder is.

    Raises:
        RegistrationError: An option is wrong.
    """
    where = f"reward function {name!r}: "
    if cache is None:
        if version is not None:
            raise RegistrationError(f"{where}cache_version={version!r} without cache=, the folder that it is about.")
        return None, pure
    kept = cache if isinstance(cache, Cache) else Cache(cache)  # type: ignore[arg-type]
    folder: object = kept.folder
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        raise RegistrationError(f"{where}cache={cache!r}: expected the path of a folder, or a guerdon.Cache of it.")
    if pure is False:
        raise RegistrationError(
            f"{where}cache= keeps outcomes for later calls with equal values, but pure=False says that these may give others. "
            "Leave one of them out."
        )
    found = as_bytes(kept.size)
    if found is None or not _LEAST <= found < 2**62:
        raise RegistrationError(f"{where}cache=: size={kept.size!r}: expected {EXPECTED_BYTES}, at least 1MiB.")
    if version is not None and not (isinstance(version, str) and version):
        raise RegistrationError(f"{where}cache_version={version!r}: expected a non-empty string.")
    path = os.path.abspath(os.path.expanduser(os.fsdecode(os.fspath(folder))))
    return CacheFolder(path, found, version), True
