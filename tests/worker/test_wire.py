"""The worker's end of the wire: values arrive as they were, in one piece or in many."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon._worker import wire
from guerdon._worker.columns import KnownConstants
from tests.worker import frame_encoding


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, wire.SupervisorSocket]]:
    engine, worker = socket.socketpair()
    with engine:
        link = wire.SupervisorSocket(worker.detach())
        yield engine, link
        os.close(link.detach())


def test_names_may_be_absent_empty_or_odd() -> None:
    assert wire.names_of(None) is None
    assert wire.names_of(b"") == ()
    assert wire.names_of(b"prompt\0a name\0\0") == ("prompt", "a name", "")


def test_messages_arrive_whole_whatever_the_pieces(ends: tuple[socket.socket, wire.SupervisorSocket]) -> None:
    engine, link = ends
    texts = ["x" * 3000 + str(index) for index in range(64)]
    sent = [
        frame_encoding.run(1, texts),
        frame_encoding.run(2, ["é", "ÿ"], codec="latin-1", names=["text"]),
        frame_encoding.run(3, ["y" * (3 << 20)]),
        frame_encoding.run(4, ["z"]),
        frame_encoding.close(),
    ]
    sender = threading.Thread(target=_send_in_pieces, args=(engine, b"".join(sent)))
    sender.start()
    found = []
    for _ in range(4):
        frame = link.next()
        assert frame is not None
        found.append((frame.id, frame.calls, wire.names_of(frame.names), _columns_of(frame)[0]))
        frame.release()
    last = link.next()
    assert last is not None
    assert last.message == wire.CLOSE
    sender.join()
    assert found == [
        (1, 64, None, texts),
        (2, 2, ("text",), ["é", "ÿ"]),
        (3, 1, None, ["y" * (3 << 20)]),
        (4, 1, None, ["z"]),
    ]
    engine.close()
    assert link.next() is None


def test_a_large_message_is_moved_once_however_small_its_pieces(
    ends: tuple[socket.socket, wire.SupervisorSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[int] = []
    make_room = wire.SupervisorSocket._make_room
    monkeypatch.setattr(
        wire.SupervisorSocket, "_make_room", lambda link, whole: (moves.append(whole), make_room(link, whole))
    )
    engine, link = ends
    text = "y" * (8 << 20)
    sender = threading.Thread(target=_send_in_pieces, args=(engine, frame_encoding.run(1, [text])))
    sender.start()
    frame = link.next()
    sender.join()
    assert frame is not None
    assert _columns_of(frame) == [[text]]
    frame.release()
    assert len(moves) == 1


def test_a_record_that_is_too_large_is_refused(ends: tuple[socket.socket, wire.SupervisorSocket]) -> None:
    _, link = ends
    assert not link.record(1, 0, bytes((16 << 20) + 1))


def test_the_engine_gone_shows_as_the_end(ends: tuple[socket.socket, wire.SupervisorSocket]) -> None:
    engine, link = ends
    engine.sendall(frame_encoding.close()[:10])
    engine.close()
    assert link.next() is None


def test_a_frame_costs_one_read_and_one_write(
    ends: tuple[socket.socket, wire.SupervisorSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, link = ends
    calls: list[str] = []

    class CountingSocket:
        def __init__(self, inner: socket.socket) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            calls.append(name)
            return getattr(self._inner, name)

    monkeypatch.setattr(link, "_socket", CountingSocket(link._socket))
    monkeypatch.setattr(wire, "os", None)
    for number in (1, 2):
        engine.sendall(frame_encoding.run(number, ["a"]))
        frame = link.next()
        assert frame is not None
        frame.release()
        link.done(number, 1, False)
    assert calls == ["recv_into", "sendall"] * 2
    monkeypatch.undo()


@pytest.mark.parametrize("then", ["reads", "writes"])
def test_a_file_with_the_number_of_the_socket_is_left_alone(then: str, tmp_path: Path) -> None:
    engine, worker = socket.socketpair()
    path = tmp_path / "file"
    path.write_bytes(b"\1" * 64)
    pid = os.fork()
    if pid == 0:
        number = worker.detach()
        link = wire.SupervisorSocket(number)
        os.dup2(os.open(path, os.O_RDWR), number)
        if then == "reads":
            link.next()
        else:
            link.ready()
        os._exit(7)
    worker.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    engine.close()
    assert path.read_bytes() == b"\1" * 64


def _send_in_pieces(engine: socket.socket, data: bytes) -> None:
    sizes = [1, 23, 24, 25, 7, 100_000, 1 << 19, 3, 1 << 20]
    at = index = 0
    while at < len(data):
        size = sizes[index % len(sizes)]
        engine.sendall(data[at : at + size])
        at, index = at + size, index + 1


def _columns_of(frame: wire.Frame) -> list[object]:
    values = frame.values(KnownConstants())
    values.decode()
    return values.columns
