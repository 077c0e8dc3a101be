"""Files that the executables of a language may need: a compiler its headers and libraries, and no
folder that holds much else.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Final

__all__ = ["beside"]

# Folders beside one called "bin": what programs are installed with.
_INSTALLED: Final = ("lib", "lib32", "lib64", "libexec", "include", "share")
# A compiler for one machine has its own: x86_64-conda-linux-gnu.
_TARGET: Final = re.compile(r"[a-z0-9_]+-[a-z0-9_]+-linux-(gnu|musl)[a-z0-9]*")
# A tree that belongs to one tool, by its contents: of the JDK, and of Go.
_OWN_TREE: Final = ("lib/modules", "pkg/tool")
# Stores in which each package has its folder, and its libraries are in those of others.
_STORES: Final = ("/nix/store", "/gnu/store")


def beside(executable: str) -> list[str]:
    """Paths that it may need: its own folder, and where that is called ``bin``, the libraries and
    headers in the folder above. Only itself where its folder is also for other things: the root, a
    home folder, one for temporary files, one that this process works in."""
    path = os.path.realpath(executable)
    found = [store for store in _STORES if path.startswith(f"{store}/")]
    folder = os.path.dirname(path)
    if _is_wide(folder):
        return [*found, path]
    found.append(folder)
    above = os.path.dirname(folder)
    if os.path.basename(folder) == "bin" and not _is_wide(above):
        found += _installed(above)
    return found


def _installed(prefix: str) -> Iterator[str]:
    if any(os.path.exists(os.path.join(prefix, one)) for one in _OWN_TREE):
        yield prefix
        return
    for name in _names_in(prefix):
        # A home's .local/share has the desktop's keys.
        if (name in _INSTALLED and (name != "share" or os.path.basename(prefix) != ".local")) or _TARGET.fullmatch(
            name
        ):
            yield os.path.join(prefix, name)


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # not this user's to list
        return [name for name in _INSTALLED if os.path.exists(os.path.join(folder, name))]


def _is_wide(folder: str) -> bool:
    """Returns whether much else is in it than an executable and what that needs."""
    if folder == "/" or _is_home(folder):
        return True
    try:
        working = os.path.realpath(os.getcwd())
        temporary = bool(os.stat(folder).st_mode & stat.S_ISVTX)
    except OSError:  # not there any more
        return True
    return temporary or working == folder or working.startswith(f"{folder}/")


def _is_home(folder: str) -> bool:
    """Returns whether it is a home folder, of this user or of another, or holds them."""
    own = os.path.realpath(os.path.expanduser("~"))
    beside_own = os.path.dirname(own)
    homes = {"/home", beside_own} - {"/"}
    return folder in (own, "/root", *homes) or os.path.dirname(folder) in homes
