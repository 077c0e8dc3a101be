"""Who starts the engine of a host and who connects, against processes that don't behave."""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon._lanes.remote.shared_engine import agent_process, greeting
from guerdon._lanes.remote.shared_engine.agent_start import start
from guerdon._lanes.remote.shared_engine.joining import Membership, join
from guerdon._lanes.remote.shared_engine.meeting import JoinError, Meeting
from guerdon._lanes.remote.shared_engine.peer import Peer
from tests.processes import started_python

DIGEST = b"d" * 32
WELCOME = greeting.pack(digest=DIGEST.hex(), started_by="rank 0")


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "e.sock", tmp_path / "e.lock")


class FakeEngine:
    """Greets who connects with given bytes, on a thread."""

    def __init__(self, meeting: Meeting, answer: bytes | None = WELCOME) -> None:
        self.came: list[bytes] = []
        self._answer = answer
        self._kept: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(meeting.socket))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._kept.append(connection)
            self.came.append(connection.recv(greeting.RECORD_BYTES))
            if self._answer is not None:
                connection.sendall(self._answer)

    def kill(self) -> None:
        """As SIGKILL does: its files stay."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._listener, *self._kept):
            one.close()


@contextlib.contextmanager
def engine(meeting: Meeting, answer: bytes | None = WELCOME) -> Iterator[FakeEngine]:
    fake = FakeEngine(meeting, answer)
    try:
        yield fake
    finally:
        fake.kill()


def never() -> None:
    raise AssertionError("an engine was started")


def joined(meeting: Meeting, start: Callable[[], object] = never, timeout: float = 5.0) -> Membership:
    found = join(meeting, DIGEST, "rank 1", start, greeting_timeout=timeout)
    found.connection.close()
    with found.peer:
        pass
    return found


def test_the_first_starts_it_and_the_others_connect(meeting: Meeting) -> None:
    started: list[FakeEngine] = []

    def start() -> None:
        time.sleep(0.05)
        started.append(FakeEngine(meeting))

    try:
        with ThreadPoolExecutor(64) as pool:
            results = list(pool.map(lambda _: joined(meeting, start), range(64)))
        assert len(started) == 1
        assert sorted(one.started for one in results) == [False] * 63 + [True]
        assert {one.peer.process for one in results} == {os.getpid()}
    finally:
        started[0].kill()


def assert_another_starts(meeting: Meeting, timeout: float = 5.0) -> None:
    started: list[FakeEngine] = []
    assert joined(meeting, lambda: started.append(FakeEngine(meeting)), timeout).started
    started[0].kill()


@pytest.mark.fault("files of a shared engine that was killed", sees="another engine")
def test_the_socket_of_a_killed_engine_is_replaced(meeting: Meeting) -> None:
    FakeEngine(meeting).kill()
    assert meeting.socket.exists()
    assert_another_starts(meeting)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n".ljust(greeting.RECORD_BYTES), "no greeting"),
        (b"\xff" * greeting.RECORD_BYTES, "no greeting"),
        (b"guerdon host {".ljust(greeting.RECORD_BYTES), "no greeting"),
        (greeting.pack(digest="", refused="this engine is full"), "this engine is full"),
        (greeting.pack(digest=b"other".hex()), "other functions"),
        (WELCOME.replace(b'"protocol": 1', b'"protocol": 2'), "protocol 2, this one 1"),
        (None, r"does not answer within 0\.5 s"),
        (b"", "does not answer|closed"),
    ],
)
def test_an_answer_that_is_none_is_reported(meeting: Meeting, answer: bytes | None, reason: str) -> None:
    with engine(meeting, answer), pytest.raises(JoinError, match=reason):
        joined(meeting, timeout=5.0 if answer else 0.5)


@pytest.mark.fault(
    "what listens on the socket of the shared engine answers a byte at a time",
    sees="workers of its own, with one warning, after 5 s in all",
)
def test_an_answer_that_drips_is_not_waited_for(meeting: Meeting) -> None:
    with engine(meeting, None) as fake:
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                for connection in list(fake._kept):
                    with contextlib.suppress(OSError):
                        connection.sendall(WELCOME[:1])

        dripping = threading.Thread(target=drip)
        dripping.start()
        begun = time.monotonic()
        try:
            with pytest.raises(JoinError, match=r"does not answer within 0\.5 s"):
                joined(meeting, timeout=0.5)
        finally:
            stop.set()
            dripping.join()
        assert time.monotonic() - begun < 10, "512 bytes take 25 s"


def test_a_folder_in_the_place_of_the_socket_is_reported(meeting: Meeting) -> None:
    meeting.socket.mkdir()
    with pytest.raises(JoinError, match=r"directory|e\.sock"):
        joined(meeting)


def test_an_engine_that_ends_as_it_starts_is_reported(meeting: Meeting) -> None:
    with pytest.raises(JoinError, match="ended as soon"):
        joined(meeting, lambda: FakeEngine(meeting).kill())


@pytest.mark.fault(
    "a rank comes late and finds the shared engine stopped", sees="another engine; the stopped one is killed"
)
def test_a_stopped_engine_is_killed_and_replaced(meeting: Meeting) -> None:
    program = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('up', flush=True); time.sleep(60)"
    )
    with started_python(program, meeting.socket, says="up") as stopped:
        stopped.send_signal(signal.SIGSTOP)
        assert_another_starts(meeting, timeout=0.2)
        assert stopped.wait() == -signal.SIGKILL


def test_lock_wait_covers_the_start_of_an_engine() -> None:
    """A shorter wait would make a slow start (a cold file system) end in several engines."""
    patience = inspect.signature(join).parameters["lock_timeout"].default
    slowest = inspect.signature(start).parameters["timeout"].default + 2 * greeting.TIMEOUT_S
    assert patience > slowest


def test_a_hostile_day(meeting: Meeting) -> None:
    """Ranks come and go and die, engines are killed, starts fail: there is never a second engine
    beside one that lives, and who joins has joined one that lives."""
    generator = random.Random(15)
    alive: list[FakeEngine] = []
    most, problems = 0, []

    def start() -> None:
        nonlocal most
        if generator.random() < 0.2:
            raise JoinError("no memory")
        if generator.random() < 0.2:
            FakeEngine(meeting).kill()
            return
        alive.append(FakeEngine(meeting))
        most = max(most, len(alive))

    def rank() -> None:
        for _ in range(6):
            try:
                joined(meeting, start)
            except JoinError as error:
                problems.append(str(error))

    def killer() -> None:
        for _ in range(20):
            time.sleep(generator.random() / 100)
            # Under the lock, so that the count above is right.
            with meeting.locked():
                if alive:
                    alive.pop().kill()

    with ThreadPoolExecutor(13) as pool:
        for one in [*(pool.submit(rank) for _ in range(12)), pool.submit(killer)]:
            one.result(60)
    for engine_alive in alive:
        engine_alive.kill()
    assert most == 1
    assert set(problems) <= {"no memory", "its process ended as soon as it had started"}
    assert len(problems) < 12 * 6


def test_a_rank_that_cannot_be_carried_leaves_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cause is an engine that has no descriptors left."""

    class Link:
        reason = ""

        def lost(self, reason: str) -> None:
            self.reason = reason

    def refuse(_: Any, *taken: int, process: int, handle: int, ended: int) -> Any:
        for descriptor in (*taken, handle, ended):
            os.close(descriptor)
        raise OSError("too many open files")

    link = Link()
    monkeypatch.setattr("guerdon._native.carry", refuse)
    agent = SimpleNamespace(connect=lambda name: link)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = agent_process._AgentServer(None, agent, ours)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="too many"):
            server._connect(theirs, "rank 1", Peer(ours))
    assert link.reason == "its connection can't be carried"
    assert not server._carriers
