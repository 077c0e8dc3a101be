"""Obstacles to forking this process once it has loaded the functions.

- A fork has the thread that forked, and the locks of all others as they were: it may hang at once.
- The state of an accelerator's driver does not survive a fork: "Cannot re-initialize CUDA in forked
  subprocess". A driver in use is detected by its open device files.
- NVML, which only queries devices, opens the control files alone and is not an obstacle; CUDA
  always opens the file for unified memory.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NamedTuple

# Prefixes of device files: CUDA, CUDA in WSL, CUDA on Tegra, ROCm, Gaudi and TPU, Ascend.
DEVICES = ("/dev/nvidia-uvm", "/dev/dxg", "/dev/nvmap", "/dev/kfd", "/dev/accel", "/dev/davinci")


class ForkObstacles(NamedTuple):
    """Threads beside the main one, by name, and device files of accelerators."""

    threads: tuple[str, ...]
    devices: tuple[str, ...]

    def __str__(self) -> str:
        found = []
        if self.threads:
            found.append(f"{_count(len(self.threads), 'thread')} ({', '.join(self.threads)})")
        if self.devices:
            found.append(f"an accelerator in use ({', '.join(self.devices)})")
        return " and ".join(found)

    def warning(self) -> str:
        """Returns the consequence, and the remedy."""
        advice = "import or start what makes them in the function or in setup()" if self.threads else ""
        if self.devices:
            advice += "; " if advice else ""
            advice += "touch the accelerator (torch.cuda.is_available() too) in the function or in setup()"
        return (
            f"warning: the modules of the reward functions left {self} when they were imported, so that workers can't be "
            f"forked from a loaded process. Each loads the functions itself: slower to start, with memory of its own. "
            f"To avoid it, {advice}. `guerdon info FILE` shows which function's module it is."
        )


def find() -> ForkObstacles:
    """Returns the present obstacles to a fork of this process."""
    return ForkObstacles(_threads(), _devices())


def _threads() -> tuple[str, ...]:
    """The threads beside this one: Python's name where it has one, else the kernel's."""
    known = {thread.native_id: thread.name for thread in threading.enumerate()} if "threading" in sys.modules else {}
    found = []
    for number in os.listdir("/proc/self/task"):
        if int(number) == os.getpid():
            continue
        name = known.get(int(number))
        try:
            with open(f"/proc/self/task/{number}/comm", "rb") as file:
                found.append(name or file.read().strip().decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return tuple(sorted(found))


def _devices() -> tuple[str, ...]:
    """Device files of accelerators that are open here."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one of the listing
            continue
        if path.startswith(DEVICES):
            found.add(path)
    return tuple(sorted(found))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
