"""What programs could leave on the machine, and the interpreter's library, before and after."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil

import guerdon

__all__ = ["left", "library"]

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


def left() -> dict[str, object]:
    """What can be left: processes, System V objects, files by their names."""
    return {
        "processes": sorted(process.pid for process in psutil.Process().children(recursive=True)),
        "objects": {name: Path(f"/proc/sysvipc/{name}").read_text() for name in ("shm", "msg", "sem")},
        "files": [
            f"{place}/{name}"
            for place in _PLACES
            if os.access(place, os.R_OK)
            for name in os.listdir(place)
            if _NAME in name or name in ("reward.txt", "left.py", "left.txt")
        ],
    }
