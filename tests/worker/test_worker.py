"""The worker itself, in a fork of the test process, with the test as its engine."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon._worker import shared_page, wire
from guerdon._worker.loaded_functions import LoadedFunctions
from guerdon._worker.shared_page import SharedPage
from guerdon._worker.worker import Worker
from tests.clock import eventually
from tests.worker import frame_encoding

HEADER = struct.Struct("<IBBHQ")


def work(text: str) -> Any:
    verb, _, rest = text.partition(" ")
    if verb == "sleep":
        time.sleep(float(rest))
        return 1.0
    if verb == "hang":
        Path(rest).touch()
        time.sleep(30)
    if verb == "stubborn":
        try:
            Path(rest).touch()
            time.sleep(30)
        except BaseException:
            return 7.0
    return float(rest)


class Engine:
    """What the supervisor does, by hand."""

    def __init__(self, socket_: socket.socket, page: SharedPage, commands: memoryview, pid: int) -> None:
        self.socket, self.page, self.commands, self.pid = socket_, page, commands, pid
        self._rest = b""

    def message(self) -> tuple[int, int, int, int, bytes]:
        """The next message: kind, flags, call, frame, body."""
        while True:
            if len(self._rest) >= HEADER.size:
                length, kind, flags, call, frame = HEADER.unpack_from(self._rest)
                if len(self._rest) >= HEADER.size + length:
                    body = self._rest[HEADER.size : HEADER.size + length]
                    self._rest = self._rest[HEADER.size + length :]
                    return kind, flags, call, frame, body
            part = self.socket.recv(1 << 16)
            assert part, "the worker is gone"
            self._rest += part

    def run(self, frame: int, texts: list[str]) -> None:
        self.socket.sendall(frame_encoding.run(frame, texts))


Start = Callable[..., Engine]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a worker for a target."""
    engines: list[Engine] = []

    def begin(target: Any) -> Engine:
        recipe = {"name": "f", "shape": "sample", "rowwise": False, "records": [], "stateful": False}
        functions = [{"recipe": recipe, "target": ("value", pickle.dumps(target))}]
        places = {"sys_path": sys.path, "main_path": None, "main_name": None, "stamps": {}}
        serialized = pickle.dumps({**places, "functions": functions})
        ours, theirs = socket.socketpair()
        fd = os.memfd_create("page")
        os.ftruncate(fd, shared_page.SIZE)
        stack = os.memfd_create("stack")
        os.ftruncate(stack, shared_page.SIZE)
        commands = mmap.mmap(stack, shared_page.SIZE)
        page = SharedPage(fd, stack)
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                Worker(wire.SupervisorSocket(theirs.fileno()), page, LoadedFunctions(serialized)).serve()
            finally:
                os._exit(0)
        theirs.close()
        os.close(fd)
        os.close(stack)
        engine = Engine(ours, page, memoryview(commands).cast("Q"), pid)
        engines.append(engine)
        assert engine.message()[0] == wire.READY
        return engine

    yield begin
    for engine in engines:
        engine.socket.close()
        os.kill(engine.pid, signal.SIGKILL)
        os.waitpid(engine.pid, 0)
        engine.page.release()
        engine.commands.release()


def test_a_timeout_is_reported_and_the_worker_retires(start: Start, tmp_path: Path) -> None:
    engine = start(work)
    engine.run(1, ["give 1", f"hang {tmp_path / 'inside'}", "give 3"])
    _fire(engine, 1 << 8 | 2, tmp_path / "inside")
    kind, flags, call, frame, body = engine.message()
    assert (kind, flags, call, frame) == (wire.FAIL, wire.INTERRUPTED | wire.RETRYABLE, 1, 1)
    assert b"in work" in body
    assert engine.message() == (wire.DONE, wire.RETIRE, 2, 1, b"")
    os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)


def test_a_swallowed_timeout_retires_the_worker_too(start: Start, tmp_path: Path) -> None:
    engine = start(work)
    engine.run(1, [f"stubborn {tmp_path / 'inside'}", "give 2"])
    _fire(engine, 1 << 8 | 1, tmp_path / "inside")
    assert engine.message() == (wire.DONE, wire.RETIRE, 2, 1, b"")
    assert list(engine.page.results_of(1).values[:2]) == [7.0, 2.0]


def test_a_late_signal_does_nothing(start: Start) -> None:
    engine = start(work)
    engine.run(1, ["give 1"])
    engine.message()
    engine.commands[shared_page.FIRE] = 1 << 8 | 1
    os.kill(engine.pid, signal.SIGURG)
    engine.run(2, ["sleep 0.1", "give 2"])
    os.kill(engine.pid, signal.SIGURG)
    assert engine.message() == (wire.DONE, 0, 2, 2, b"")


def test_a_target_that_cannot_be_loaded_says_so_each_time(start: Start) -> None:
    engine = start(_Unloadable())
    for frame in (1, 2):
        engine.run(frame, ["1"])
        kind, _, _, _, body = engine.message()
        assert kind == wire.SETUP_FAILED
        assert b"RuntimeError: not here" in body
        assert engine.message() == (wire.DONE, 0, 0, frame, b"")


class _Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("not here")


def _fire(engine: Engine, claim: int, inside: Path) -> None:
    """Lets a call run out of time once it is inside the function: a claim comes before that."""
    eventually(lambda: engine.page.words[shared_page.PROGRESS] == claim)
    eventually(inside.exists)
    engine.commands[shared_page.FIRE] = claim
    os.kill(engine.pid, signal.SIGURG)
