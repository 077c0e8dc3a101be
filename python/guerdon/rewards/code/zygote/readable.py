"""Files that programs may read: the interpreter, the system's libraries, and where modules are."""

from __future__ import annotations

import glob
import importlib.util
import os
import site
import stat
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

__all__ = ["SYSTEM", "folders_of", "holding", "interpreter", "packages", "places_of", "searched"]

# Files that programs may read besides the interpreter: shared libraries, time zones, what says how
# many cores there are. A path that does not exist is passed over.
SYSTEM: Final = (
    *("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/bin", "/usr/sbin", "/usr/include"),
    *("/usr/local/lib", "/usr/local/lib64", "/usr/local/bin", "/usr/local/include", "/usr/share/zoneinfo"),
    *("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/ld.so.conf"),
    *("/etc/ld.so.conf.d", "/etc/localtime", "/etc/alternatives", "/proc/cpuinfo", "/proc/meminfo"),
    *("/sys/devices/system/cpu", "/dev/urandom", "/dev/random", "/dev/zero"),
)


# Prefixes below which much else is than an interpreter: `SYSTEM` has what that needs of them.
_WIDE: Final = ("/", "/usr", "/usr/local")


def interpreter() -> list[str]:
    """Returns the folders of its modules and libraries."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, os.path.dirname(sys.executable)]
    paths += _libraries()
    found = dict.fromkeys(os.path.abspath(path) for path in paths if path)
    return [path for path in found if path not in _WIDE]


def holding(folder: str, readable: Sequence[str]) -> str | None:
    """Returns the readable folder of programs that holds this one, if any does."""
    folder = os.path.realpath(folder)
    for one in (*interpreter(), *SYSTEM, *readable):
        path = os.path.realpath(one)
        if folder == path or folder.startswith(f"{path}/"):
            return one
    return None


def _libraries() -> list[str]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return paths + [path for path in site.getsitepackages() if os.path.isdir(path)]


def packages() -> list[str]:
    """Returns the packages that can be imported from there and are not open to all: root installed
    it with a strict umask, and children that have another user could not import it."""
    closed: dict[str, None] = {}
    for folder in dict.fromkeys(os.path.abspath(path) for path in _libraries() if path):
        for one in (folder, os.path.join(folder, "lib-dynload")):
            try:
                entries = list(os.scandir(one))
            except OSError:
                continue
            for entry in entries:
                if _is_importable(entry) and not _is_open(entry):
                    closed[entry.path] = None
    return list(closed)


def _is_importable(entry: os.DirEntry[str]) -> bool:
    if entry.name.endswith((".py", ".so")):
        return True
    return entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir()


def _is_open(entry: os.DirEntry[str]) -> bool:
    try:
        mode = entry.stat().st_mode
    except OSError:  # a link that leads nowhere
        return True
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & needed == needed


def places_of(modules: tuple[str, ...]) -> list[str]:
    """Folders and files of modules, which need not be the interpreter's."""
    places: list[str] = []
    for name in dict.fromkeys(name.partition(".")[0] for name in modules):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue  # its import says why
        if spec is not None:
            places += spec.submodule_search_locations or ([spec.origin] if spec.has_location and spec.origin else [])
    # Folders in which wheels have the shared libraries of their modules: beside them, by the
    # wheel's name.
    beside = dict.fromkeys(map(os.path.dirname, places))
    return places + [found for folder in beside for found in glob.glob(f"{glob.escape(folder)}/*.libs")]


def folders_of(modules: tuple[str, ...]) -> tuple[str, ...]:
    """The entries of this process's `sys.path` in which it finds modules."""
    return tuple(dict.fromkeys(os.path.dirname(os.path.abspath(place)) for place in places_of(modules)))


@contextmanager
def searched(folders: Sequence[str]) -> Iterator[None]:
    """Modules are looked for in these too. Not for good: a program that tries whether a module is
    there must not find one that it may not read."""
    added = [folder for folder in folders if folder not in sys.path]
    sys.path += added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)
