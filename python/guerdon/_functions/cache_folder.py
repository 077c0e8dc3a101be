"""``cache=``, ``cache_size=`` and ``cache_version=`` of one function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from guerdon._system.units import EXPECTED_BYTES, as_bytes
from guerdon.errors import RegistrationError

__all__ = ["CACHE_SIZE", "CacheFolder", "checked_cache"]

CACHE_SIZE: Final = "1GiB"
_LEAST: Final = 1 << 20


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
    name: str, folder: object, size: object, version: object, *, pure: bool | None
) -> tuple[CacheFolder | None, bool | None]:
    """The folder, and whether the function is pure: one with a folder is.

    Raises:
        RegistrationError: An option is wrong.
    """
    where = f"reward function {name!r}: "
    if folder is None:
        if size != CACHE_SIZE or version is not None:
            option, value = ("cache_size", size) if size != CACHE_SIZE else ("cache_version", version)
            raise RegistrationError(f"{where}{option}={value!r} without cache=, the folder that it is about.")
        return None, pure
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        raise RegistrationError(f"{where}cache={folder!r}: expected the path of a folder.")
    if pure is False:
        raise RegistrationError(
            f"{where}cache= keeps outcomes for later calls with equal values, but pure=False says that these may give others. "
            "Leave one of them out."
        )
    found = as_bytes(size)
    if found is None or not _LEAST <= found < 2**62:
        raise RegistrationError(f"{where}cache_size={size!r}: expected {EXPECTED_BYTES}, at least 1MiB.")
    if version is not None and not (isinstance(version, str) and version):
        raise RegistrationError(f"{where}cache_version={version!r}: expected a non-empty string.")
    path = os.path.abspath(os.path.expanduser(os.fsdecode(os.fspath(folder))))
    return CacheFolder(path, found, version), True
