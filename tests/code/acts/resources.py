"""Acts that use up what all share."""

from __future__ import annotations

import errno
import mmap
import os
import threading

from guerdon.rewards.code.zygote.acts.act import Act, Missing, Targets

__all__ = ["RESOURCES"]

_ROOM = 64 << 20  # what an allocation may exceed a limit by before that counts


def _private_memory(targets: Targets) -> None:
    """Asked for, never touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mmap.mmap(-1, targets.memory_limit + _ROOM, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()


def _shared_memory(targets: Targets) -> None:
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    mmap.mmap(-1, targets.memory_limit + _ROOM, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()


def _locked_memory(_: Targets) -> None:
    from guerdon.rewards.code.zygote.acts.act import checked, libc

    checked(libc.mlockall(2))
    libc.munlockall()


def _own(targets: Targets) -> str:
    if targets.own is None:
        raise Missing("no folder of its own")
    return targets.own


def _large_file(targets: Targets) -> None:
    path = os.path.join(_own(targets), "large")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(fd, b"x", targets.file_size)  # a file with a hole: one page
    finally:
        os.close(fd)
        os.unlink(path)


def _many_bytes(targets: Targets) -> None:
    folder = _own(targets)
    piece = bytes(1 << 20)
    names = []
    try:
        for number in range((targets.writable_bytes >> 20) + 2):
            names.append(os.path.join(folder, f"piece-{number}"))
            with open(names[-1], "wb", buffering=0) as file:
                if file.write(piece) < len(piece):
                    raise OSError(errno.ENOSPC, "full")
    finally:
        for name in names:
            os.unlink(name)


def _many_files(targets: Targets) -> None:
    folder = _own(targets)
    made = []
    try:
        for number in range(targets.writable_files + 16):
            name = os.path.join(folder, f"{number}")
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT))
            made.append(name)
    finally:
        for name in made:
            os.unlink(name)


def _many_descriptors(targets: Targets) -> None:
    fds = []
    try:
        for _ in range(targets.open_files + 16):
            fds.append(os.dup(1))  # noqa: PERF401 - those before the failure are to be closed
    finally:
        for fd in fds:
            os.close(fd)


def _many_threads(targets: Targets) -> None:
    """More than twice as many as are allowed: the limit may count some of others."""
    end = threading.Event()
    threads: list[threading.Thread] = []
    threading.stack_size(64 << 10)
    try:
        for _ in range(2 * targets.tasks + 64):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            threads.append(thread)
    finally:
        end.set()
        for thread in threads:
            thread.join()


def _many_processes(targets: Targets) -> None:
    if not targets.processes:
        raise Missing("no processes of its own")
    theirs, ours = os.pipe()
    pids = []
    try:
        for _ in range(2 * targets.tasks + 64):
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
    Act("have more memory than its limit", ("limits",), _private_memory),
    Act("have more shared memory than its limit", ("limits",), _shared_memory),
    Act("lock memory", ("limits",), _locked_memory),
    Act("write a file larger than its limit", ("limits", "folder"), _large_file),
    Act("write more than its folder may hold", ("folder",), _many_bytes),
    Act("make more files than its folder may hold", ("folder",), _many_files),
    Act("open more files than its limit", ("limits",), _many_descriptors),
    Act("start more threads than its limit", ("limits", "user"), _many_threads),
    Act("start more processes than its limit", ("limits", "user"), _many_processes),
)
