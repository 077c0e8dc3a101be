"""The fences around a program's process: prepared in the zygote, entered in each child.

- ``strict``: whatever is forbidden fails; `fence_probe.probe` tries it, and refuses where it does
  not. ``none``: the rights of this user, without its environment and within its limits.
- `prepare` is called on the only thread of a process that then only forks; it may go on in a child
  of that process, and leaves it no `/proc`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import resource
import sys
import time
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from guerdon._native import Fence
from guerdon._worker.linux import exit_with_parent, no_core_dumps, prefer_to_die
from guerdon.rewards.code.zygote.readable import SYSTEM, interpreter, packages, places_of, searched
from guerdon.rewards.code.zygote.tasks import SHORTAGE, most_others, starts_a_thread

__all__ = ["ONE_ARENA", "FenceSpec", "PreparedFence", "prepare"]

# Seconds after which others may have come that the kernel counts with programs.
_ROOM_S: Final = 1.0
# That room is left for others which are gone costs nothing but a looser limit, for so long.
_COUNT_S: Final = 30.0
_WRITABLE: Final = ("/dev/null",)
ONE_ARENA: Final = {"MALLOC_ARENA_MAX": "1"}
"""The C library would reserve 64 MiB of address space for each of some threads, of `memory_limit`;
it reads this as a program starts."""

# The whole environment of children: a small program needs no pool with a thread for each core, and
# may not have that many threads.
_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class FenceSpec:
    """Permissions of programs. Sizes are bytes.

    Attributes:
        isolation: ``"strict"`` or ``"none"``.
        memory_limit: Beyond what the zygote has.
        cpu_seconds: Of processor time.
        file_size: Of one file.
        writable_bytes: Of the own folder; 0 for none.
        writable_files: That the own folder may hold.
        open_files: At a time.
        tasks: Threads, and processes where these are allowed.
        processes: Whether others may be started, by a compiler for instance.
        execute: Whether another program may take the process's place.
        readable: Paths beside those that every program may read.
        modules: Imported by the zygote, behind its fences; programs may read where they are.
        module_folders: Where these are looked for besides, after the interpreter's own folders.
        without: Layers left out, for tests of what the others hold.
    """

    isolation: Literal["strict", "none"] = "strict"
    memory_limit: int = 512 << 20
    cpu_seconds: int = 60
    file_size: int = 64 << 20
    writable_bytes: int = 64 << 20
    writable_files: int = 4096
    open_files: int = 64
    tasks: int = 64
    processes: bool = False
    execute: bool = False
    readable: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    module_folders: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Lists, where it came as JSON.
        for name in ("readable", "modules", "module_folders", "without"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


class PreparedFence:
    """Resources that a zygote has ready for its children.

    Attributes:
        layers: For each layer whether it holds, with a remark.
    """

    def __init__(self, spec: FenceSpec, fence: Fence | None, reason: str = "") -> None:
        self._spec = spec
        self._fence = fence
        self.layers = {} if fence is None else fence.layers()
        if reason:  # why there are no name spaces
            self.layers["namespaces"] = (False, reason)
        self._parent = os.getpid()
        self._room_tried = 0.0  # when it was last seen that threads start
        self._others = 0  # that room is left for, and when these were counted
        self._counted = 0.0

    @property
    def folder(self) -> str | None:
        """The folder that programs may write to, the same for one after the other."""
        folder = None if self._fence is None else self._fence.folder()
        return None if folder is None else os.fspath(folder)

    def clear_folder(self) -> None:
        """Make it empty, with the mode and the attributes it had; no child may run."""
        if self._fence is not None:
            self._fence.clear_folder()

    def fork(self) -> int:
        """Forks; the child is the first process of a name space where that is allowed."""
        if self._fence is not None and self._fence.shares_tasks() and time.monotonic() - self._room_tried > _ROOM_S:
            self.make_room_for_tasks()
        return self._fork()

    def make_room_for_tasks(self) -> None:
        """See that a program may have as many threads as its limit says, whoever else the kernel
        counts with it, and leave room for those.
        """
        if self._fence is None or "limits" in self._spec.without:
            return
        if not self._has_room():
            others = most_others(self._starts_a_thread)
            if others is None:
                raise OSError(errno.EAGAIN, SHORTAGE)
            if others:
                self._fence.leave_room_for_tasks(others)
            self._others, self._counted = others, time.monotonic()
        self._room_tried = time.monotonic()

    def _has_room(self) -> bool:
        """Returns whether a recent result will do: one try in place of ten."""
        recent = time.monotonic() - self._counted < _COUNT_S
        return recent and self._others > 0 and self._starts_a_thread(self._others)

    def _starts_a_thread(self, others: int) -> bool:
        """Returns whether one starts at the limit of a child, with room for `others` tasks of
        others."""
        assert self._fence is not None
        self._fence.leave_room_for_tasks(others)
        pid = self._fork()
        if pid == 0:
            try:
                self.enter((0, 1, 2))
                os._exit(0 if starts_a_thread(self._spec.tasks) else 1)
            finally:
                os._exit(2)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code not in (0, 1):
            raise OSError(errno.EAGAIN, f"a child could not be fenced: it ended with {code}")
        return code == 0

    def _fork(self) -> int:
        if self._fence is None:
            return os.fork()
        self._fence.before_fork()
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                self._fence.after_fork()
        return pid

    def enter(self, keep: tuple[int, ...], *, alone: bool = False) -> None:
        """Runs in the child, before any of the program.

        Args:
            keep: Descriptors that stay open.
            alone: It may start no process, though others of this zygote may.
        """
        if self._fence is not None:
            self._fence.enter(list(keep), alone)
        else:
            self._enter_unfenced()

    def _enter_unfenced(self) -> None:
        os.setsid()
        exit_with_parent(self._parent)
        no_core_dumps()
        prefer_to_die(1000)
        memory, seconds = self._spec.memory_limit, self._spec.cpu_seconds
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def prepare(spec: FenceSpec) -> PreparedFence:
    """Runs in the zygote, before its first fork; see the module."""
    # Room for all children; before a library of a module reads it.
    os.environ.clear()
    os.environ.update(_ONE_THREAD)
    with searched(spec.module_folders):
        prepared = _prepared(spec)
        _import(spec.modules, prepared)
    prepared.make_room_for_tasks()
    return prepared


def _prepared(spec: FenceSpec) -> PreparedFence:
    if spec.isolation == "none":
        return PreparedFence(spec, None)
    reason = "" if "namespaces" in spec.without else _why_no_namespaces(spec)
    fence = _fence(spec, (*spec.without, "namespaces") if reason else spec.without)
    if fence.needs_fork():
        _go_on_in_a_child()
        fence.finish()
    return PreparedFence(spec, fence, reason)


def _import(modules: tuple[str, ...], prepared: PreparedFence) -> None:
    """Once the fences are ready: a library that starts threads would keep name spaces from being
    made."""
    if not modules:
        return
    # Some write as they are imported: it is gone before the first program.
    places = dict.fromkeys(("HOME", "TMPDIR"), prepared.folder or "/")
    os.environ.update(places)
    for name in modules:
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                importlib.import_module(name)
        except Exception as error:
            why = "".join(str(error).strip().splitlines()[-1:])  # after a page of advice
            raise RuntimeError(
                f"modules={name!r} can't be imported where programs run: {type(error).__name__}: {why}. Install it for "
                f"{sys.executable}, name what else it needs in modules=, or leave it out"
            ) from error
    for name in places:
        os.environ.pop(name, None)
    prepared.clear_folder()


def _why_no_namespaces(spec: FenceSpec) -> str:
    """Tried in a process that ends at once: what is half made of them can't be undone."""
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            holds, text = _fence(spec, spec.without).layers()["namespaces"]
            os.write(ours, b"" if holds else text.encode())
        except Exception as error:
            os.write(ours, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(ours)
    with open(theirs, "rb") as pipe:
        reason = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    return reason or ("" if status == 0 else f"the process that tried it ended: {status}")


def _fence(spec: FenceSpec, without: tuple[str, ...]) -> Fence:
    paths = {
        "readable": [*interpreter(), *SYSTEM, *spec.readable, *places_of(spec.modules)],
        "libraries": packages(),
        "writable": _WRITABLE,
    }
    return Fence(vars(spec) | {name: [*map(os.fsencode, one)] for name, one in paths.items()} | {"without": without})


def _go_on_in_a_child() -> None:
    """The caller goes on as the first process of its name space of processes; this one waits."""
    outer = os.getpid()
    pid = os.fork()
    if pid == 0:
        exit_with_parent(0)
        return
    _wait_for(pid, outer)


def _wait_for(pid: int, outer: int) -> NoReturn:
    """Ends as that process does, and keeps no descriptor open that another process waits for."""
    os.closerange(0, 65536)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        os.kill(outer, os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
