"""Acts that use up what all share."""

from __future__ import annotations

import mmap
import os

from guerdon.rewards.code.zygote.acts import _ROOM
from tests.code.acts.act import Act, Missing, Targets, checked, libc, own_folder

__all__ = ["RESOURCES"]


def _shared_memory(targets: Targets) -> None:
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    mmap.mmap(-1, targets.spec.memory_limit + _ROOM, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()


def _locked_memory(_: Targets) -> None:
    checked(libc.mlockall(2))
    libc.munlockall()


def _large_file(targets: Targets) -> None:
    path = os.path.join(own_folder(targets), "large")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(fd, b"x", targets.spec.file_size)  # a file with a hole: one page
    finally:
        os.close(fd)
        os.unlink(path)


def _many_files(targets: Targets) -> None:
    folder = own_folder(targets)
    made = []
    try:
        for number in range(targets.spec.writable_files + 16):
            name = os.path.join(folder, f"{number}")
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT))
            made.append(name)
    finally:
        for name in made:
            os.unlink(name)


def _many_descriptors(targets: Targets) -> None:
    fds = []
    try:
        for _ in range(targets.spec.open_files + 16):
            fds.append(os.dup(1))  # noqa: PERF401 - those before the failure are to be closed
    finally:
        for fd in fds:
            os.close(fd)


def _many_processes(targets: Targets) -> None:
    if not targets.spec.processes:
        raise Missing("no processes of its own")
    theirs, ours = os.pipe()
    pids = []
    try:
        for _ in range(2 * targets.spec.tasks + 64):
            pid = os.fork()
            if pid == 0:
                os.close(ours)
                os.read(theirs, 1)
                os._exit(0)
            pids.append(pid)
    finally:
        os.close(theirs)
        os.close(ours)
        for pid in pids:
            os.waitpid(pid, 0)


RESOURCES = (
    Act("have more shared memory than its limit", ("limits",), _shared_memory),
    Act("lock memory", ("limits",), _locked_memory),
    Act("write a file larger than its limit", ("limits", "folder"), _large_file),
    Act("make more files than its folder may hold", ("folder",), _many_files),
    Act("open more files than its limit", ("limits",), _many_descriptors),
    Act("start more processes than its limit", ("limits", "user"), _many_processes),
)
