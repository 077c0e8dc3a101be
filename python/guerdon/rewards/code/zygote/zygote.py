"""The zygote: a small Python process that forks one process for each program.

- It runs nothing of a program, and is never a fork of the trainer.
- One program at a time. When its process ends, or is killed, all that it started ends with it;
  only then its end is reported, so that nothing of one program is there beside the next.
- It ends with its driver: when that closes the control socket, or dies.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

from guerdon._worker import fork_server, linux
from guerdon.rewards.code.child import child
from guerdon.rewards.code.zygote.fence import FenceSpec, PreparedFence, prepare

__all__ = ["ANSWER", "CLEAR", "CONTROL", "END", "FAILED", "FORK", "KILL", "READY", "STANDARD", "TIME", "main"]

CONTROL: Final = 3
# A request is one byte, FORK with the mode's name after it and four descriptors with it. An answer
# is a struct of its kind, seconds of a processor, how often that was taken from the process, and a
# wait status: READY with the layers that hold after it, as JSON, TIME with the seconds that the
# process used so far, END with what it reported of its own start. FAILED has only a text.
FORK, KILL, CLEAR, TIME = b"F", b"K", b"C", b"T"
ANSWER: Final = struct.Struct("<cdqi")
READY, END, FAILED = b"R", b"E", b"X"
# The kernel's number of a process's clock, in the lowest bits.
_PROCESS_CLOCK: Final = 2
# Most zygotes of a host that share a core by name.
_TURNS: Final = 256

# Bytes of one of CPython's pools of small objects, and of its head.
_POOL, _POOL_HEAD = 16 << 10, 48
# Bytes for objects of one size, where no new pool is met.
_MOST_FILLED: Final = 64 << 10
_filled: list[object] = []

STANDARD: Final = (
    *("abc", "array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "numbers", "operator"),
    *("random", "re", "statistics", "string", "time", "traceback", "typing"),
)
"""Modules that nearly every program imports: loaded once, here. Not ``threading``: it doubles what
a fork costs."""


def main(control: int, parent: int, fence: str) -> None:
    """Serve forks until the control socket is closed.

    Args:
        control: The descriptor of the control socket.
        parent: The process to end with; 0 where only the socket tells of its end.
        fence: The fields of a `FenceSpec`, as JSON.
    """
    linux.reset_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A worker bounds its own memory while it judges; fences bound that of programs.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if control != CONTROL:
        os.dup2(control, CONTROL)
        os.close(control)
    with ExitStack() as stack, socket.socket(fileno=CONTROL) as connection:
        try:
            if parent:
                linux.exit_with_parent(parent)
            linux.adopt_orphans()
            core = stack.enter_context(_own_core())
            if core is not None:
                with suppress(OSError):  # a filter of system calls, or a cpuset that changed
                    os.sched_setaffinity(0, {core})
            for name in STANDARD:
                importlib.import_module(name)
            spec = FenceSpec(**json.loads(fence))
            if spec.execute:  # behind the fences its file may not be there
                from guerdon.rewards.code.zygote.unfenced_folder import unfenced_folder
            prepared = prepare(spec)
            # Tasks with long integers are usual; a module may have set another limit.
            if hasattr(sys, "set_int_max_str_digits"):
                sys.set_int_max_str_digits(0)
            if spec.modules:
                linux.flush_c_stdout()  # else each program would print what a module did
            holds = {name: state for name, (held, state) in prepared.layers.items() if held}
            ready = ANSWER.pack(READY, 0.0, 0, 0) + json.dumps(holds).encode()
            # Command for programs without fences: programs of other languages, with this user's
            # rights.
            folder = None
            if spec.execute and not prepared.folder:
                folder = stack.enter_context(unfenced_folder())
            server = _ForkServer(connection, prepared, folder)
            child.rehearse()
            gc.collect()
            _fill_pools()
            gc.freeze()
            connection.send(ready)
            server.serve()
        except Exception as error:
            with suppress(OSError):  # the driver is gone
                connection.send(FAILED + _described(error))


def _fill_pools() -> None:
    """Fills the free places of CPython's pools, one for each size, up to the first place of a new
    pool: the objects of a child lie side by side, on few pages, not among those of this process."""
    if "t" in sys.abiflags:  # free-threaded: it has other pools
        return
    for size in range(16, 513, 16):
        for number in range(_MOST_FILLED // size):
            one = object() if size == 16 else float(number) if size == 32 else bytes(size - sys.getsizeof(b""))
            _filled.append(one)
            if id(one) % _POOL == _POOL_HEAD:
                break


@contextmanager
def _own_core() -> Iterator[int | None]:
    """A core for this zygote and its programs, which no other has while there are enough: a program
    with many threads takes none of another's time. None where it may use one anyway."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        yield None
        return
    # Other containers see the same cores and not these names: each begins at the core it runs on.
    with open("/proc/self/stat", "rb") as stat:
        here = int(stat.read().rpartition(b")")[2].split()[36])
    at = cores.index(here) if here in cores else 0
    with socket.socket(socket.AF_UNIX) as held:
        for turn in range(_TURNS):
            for core in cores[at:] + cores[:at]:
                try:
                    held.bind(f"\0guerdon-code-core-{core}-{turn}")  # gone with this process
                except OSError:
                    continue
                yield core
                return
        yield None


class _ForkServer:
    def __init__(self, control: socket.socket, prepared: PreparedFence, folder: str | None) -> None:
        self._folder = folder
        self._control = control
        self._prepared = prepared
        self._pid = 0  # of the program's process; 0 without one
        self._mode = ""
        self._mark = -1  # the report of its process on its start
        self._highest = os.dup(CONTROL) + 16
        os.close(self._highest - 16)

    def serve(self) -> None:
        fork_server.serve(CONTROL, None, self._request, self._reap)
        self._kill()

    def _request(self) -> bool:
        """Serve a request; False when there will be no more."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 16, 8)
        except ConnectionError:
            return False
        if data[:1] == FORK:
            self._fork(data[1:].decode(), fds)
        elif data == KILL:
            self._kill()
        elif data == TIME:
            self._control.send(ANSWER.pack(TIME, self._used(), 0, 0))
        elif data == CLEAR:
            self._clear_folder()
        for fd in fds:
            os.close(fd)
        return bool(data)

    def _fork(self, mode: str, fds: list[int]) -> None:
        self._open_folder()
        theirs, mark = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            pid = fork_server.fork(partial(self._run, mode, fds, mark), _exit_early, self._prepared.fork)
        except OSError as error:
            for fd in (theirs, mark):
                os.close(fd)
            self._control.send(FAILED + _described(error))
            return
        os.close(mark)
        self._pid, self._mode, self._mark = pid, mode, theirs

    def _run(self, mode: str, fds: list[int], mark: int) -> None:
        """Runs a program in its process, which ends there."""
        try:
            for number, fd in enumerate(fds):  # all of them are above CONTROL
                os.dup2(fd, number)
            for number in (signal.SIGINT, signal.SIGPIPE):
                linux.reset_signal(number)
            self._prepared.enter((0, 1, 2, CONTROL, mark), alone=mode != "build")
            os.closerange(CONTROL + 1, mark)
            os.closerange(mark + 1, max(mark, self._highest))
            if self._folder is not None:
                os.chdir(self._folder)
            child.run(mode, mark)
        except BaseException as error:  # before anything of the program ran
            os.write(mark, _described(error))

    def _used(self) -> float:
        """Seconds of a processor that the program's process used."""
        try:
            return time.clock_gettime(~self._pid << 3 | _PROCESS_CLOCK) if self._pid else 0.0
        except OSError:
            return 0.0

    def _open_folder(self) -> None:
        """An earlier run of the program may have removed or closed it."""
        if self._folder is not None:
            os.makedirs(self._folder, exist_ok=True)
            os.chmod(self._folder, 0o700)

    def _clear_folder(self) -> None:
        self._prepared.clear_folder()
        if self._folder is not None:
            from guerdon.rewards.code.zygote.unfenced_folder import clear

            self._open_folder()
            clear(self._folder)

    def _kill(self) -> None:
        if self._pid:
            linux.kill(self._pid)

    def _reap(self) -> None:
        """Reports the program's end, once all its processes are gone."""
        pid = self._pid
        if not pid or not linux.has_ended(pid):
            return  # what it started, and lost, is reaped with it
        linux.kill(pid)  # its group; the number is still its own
        _, status, usage = os.wait4(pid, 0)
        self._pid = 0
        fork_server.sweep()
        if self._mode not in ("exec", "build"):  # a compiler's output is for the next
            self._clear_folder()
        try:
            reported = os.read(self._mark, 4096)
        except BlockingIOError:  # it never came to close it
            reported = b""
        os.close(self._mark)
        seconds = usage.ru_utime + usage.ru_stime
        self._control.send(ANSWER.pack(END, seconds, usage.ru_nivcsw, status) + reported)


def _exit_early(_: int) -> None:
    """Ends a child that did not come to its program."""
    os._exit(71)


def _described(error: BaseException) -> bytes:
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:4000]
