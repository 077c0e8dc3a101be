"""Traces of programs on the machine, and the interpreter's library, before and after.

Processes count wherever they went: while `orphans_come_here`, what outlives its parents becomes a
child of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import guerdon

__all__ = ["left", "library", "orphans_come_here"]

# As the programs of the red team name all that they make.
_NAME = "guerdon_red_team"
_PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/run/lock", "/own", "/root", ".")


def library() -> dict[str, str]:
    """A digest of each file of the library and of Guerdon that code is loaded from."""
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in _files()}


def _files() -> Iterator[Path]:
    own = Path(guerdon.__file__).parent
    site = Path(sysconfig.get_path("purelib"))
    for root in dict.fromkeys((Path(sysconfig.get_path("stdlib")), own)):
        for folder, folders, names in os.walk(root):
            # Byte code comes and goes with whoever imports; other packages are too many.
            folders[:] = [name for name in folders if name not in ("__pycache__", "site-packages", "test", "idlelib")]
            yield from (Path(folder, name) for name in names)
    yield from site.glob("*.pth")
    yield from site.glob("*customize.py")


@contextlib.contextmanager
def orphans_come_here() -> Iterator[None]:
    """Makes this process the parent of orphans, as a machine's first process is; reaps them."""
    libc = ctypes.CDLL(None, use_errno=True)
    subreaper = 36
    before = {process.pid for process in psutil.Process().children()}
    assert libc.prctl(subreaper, ctypes.c_ulong(1), 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(subreaper, ctypes.c_ulong(0), 0, 0, 0)
        for process in psutil.Process().children():
            if process.pid not in before and not _runs(process):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def left() -> dict[str, Any]:
    """The traces: processes, System V objects, files by their names."""
    return {
        "processes": sorted(process.pid for process in psutil.Process().children(recursive=True) if _runs(process)),
        "objects": {name: Path(f"/proc/sysvipc/{name}").read_text() for name in ("shm", "msg", "sem")},
        "files": [
            f"{place}/{name}"
            for place in _PLACES
            if os.access(place, os.R_OK)
            for name in os.listdir(place)
            if _NAME in name or name in ("reward.txt", "left.py", "left.txt")
        ],
    }
