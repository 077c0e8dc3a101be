"""The worker's end of the wire: values arrive as they were, in one piece or in many."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon._worker import wire
from tests.worker import encoding

ODD_TEXTS = ["", "a\0b", "é", "€", "\ud83d\ude00", "\U0001f600", "\udc80", "x" * 5000, "ÿ" * 300]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, wire.Link]]:
    engine, worker = socket.socketpair()
    with engine, worker:
        yield engine, wire.Link(worker.fileno())


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=[]), max_size=20), max_size=20))
def test_mixed_texts_arrive_as_they_are(texts: list[str]) -> None:
    rows, columns = wire.decode_columns(memoryview(encoding.values(len(texts), 1, encoding.mixed_text(0, texts))))
    assert (rows, columns) == (len(texts), [texts])


def test_parts_give_the_values_at_their_positions() -> None:
    content = encoding.values(
        4,
        5,
        encoding.plain_text(1, ["a", "", "bc", "d"]),
        encoding.plain_text(3, ["é", "ÿ", "", "a"], "latin-1"),
        encoding.pickled([0, 4], [([[1, 2, 3], ["x", "y", "z"]], [0, 2]), ([[4, 5], ["u", "v"]], [1, 1])]),
        encoding.constant([2], [{"step": 7}]),
    )
    rows, columns = wire.decode_columns(memoryview(content))
    assert rows == 4
    assert columns[0] == [1, 3, 5, 5]
    assert columns[1] == ["a", "", "bc", "d"]
    assert isinstance(columns[2], wire.Constant)
    assert columns[2].value == {"step": 7}
    assert columns[3] == ["é", "ÿ", "", "a"]
    assert columns[4] == ["x", "z", "v", "v"]


def test_names_may_be_absent_empty_or_odd() -> None:
    assert wire.names_of(None) is None
    assert wire.names_of(b"") == ()
    assert wire.names_of(b"prompt\0a name\0\0") == ("prompt", "a name", "")


def test_messages_arrive_whole_whatever_the_pieces(ends: tuple[socket.socket, wire.Link]) -> None:
    engine, link = ends
    texts = ["x" * 3000 + str(index) for index in range(64)]
    sent = [
        encoding.run(1, encoding.values(64, 1, encoding.plain_text(0, texts)), calls=64),
        encoding.run(2, encoding.values(2, 1, encoding.mixed_text(0, ["é", "€"])), calls=2, names=["text"]),
        encoding.run(3, encoding.values(1, 1, encoding.plain_text(0, ["y" * (3 << 20)])), calls=1),
        encoding.run(4, encoding.values(1, 1, encoding.plain_text(0, ["z"])), calls=1),
        encoding.close(),
    ]
    sender = threading.Thread(target=_send_in_pieces, args=(engine, b"".join(sent)))
    sender.start()
    found = []
    for _ in range(4):
        frame = link.next()
        assert frame is not None
        found.append((frame.id, frame.calls, wire.names_of(frame.names), frame.decode()[1][0]))
        frame.release()
    last = link.next()
    assert last is not None
    assert last.message == wire.CLOSE
    sender.join()
    assert found == [
        (1, 64, None, texts),
        (2, 2, ("text",), ["é", "€"]),
        (3, 1, None, ["y" * (3 << 20)]),
        (4, 1, None, ["z"]),
    ]
    engine.close()
    assert link.next() is None


def test_a_large_message_is_moved_once_however_small_its_pieces(
    ends: tuple[socket.socket, wire.Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[int] = []
    make_room = wire.Link._make_room
    monkeypatch.setattr(wire.Link, "_make_room", lambda link, whole: (moves.append(whole), make_room(link, whole)))
    engine, link = ends
    text = "y" * (8 << 20)
    data = encoding.run(1, encoding.values(1, 1, encoding.plain_text(0, [text])), calls=1)
    sender = threading.Thread(target=_send_in_pieces, args=(engine, data))
    sender.start()
    frame = link.next()
    sender.join()
    assert frame is not None
    assert frame.decode()[1] == [[text]]
    frame.release()
    assert len(moves) == 1


def test_group_and_finish_frames_carry_sizes_and_scores(ends: tuple[socket.socket, wire.Link]) -> None:
    engine, link = ends
    content = encoding.values(5, 1, encoding.plain_text(0, list("abcde")))
    engine.sendall(
        encoding.run(
            1,
            content,
            calls=2,
            kind=wire.FINISH,
            names=["text"],
            counts=[2, 3],
            scores=[1.0, float("nan"), 0.0, 2.0, -1.5],
        )
    )
    frame = link.next()
    assert frame is not None
    assert frame.counts == (2, 3)
    assert frame.scores == [1.0, None, 0.0, 2.0, -1.5]
    assert frame.decode() == (5, [list("abcde")])


def test_w1_a_record_that_is_too_large_is_refused(ends: tuple[socket.socket, wire.Link]) -> None:
    _, link = ends
    assert not link.record(1, 0, bytes((16 << 20) + 1))


def test_the_engine_gone_shows_as_the_end(ends: tuple[socket.socket, wire.Link]) -> None:
    engine, link = ends
    engine.sendall(encoding.close()[:10])
    engine.close()
    assert link.next() is None
    os.fstat(link.fd)


def _send_in_pieces(engine: socket.socket, data: bytes) -> None:
    sizes = [1, 23, 24, 25, 7, 100_000, 1 << 19, 3, 1 << 20]
    at = index = 0
    while at < len(data):
        size = sizes[index % len(sizes)]
        engine.sendall(data[at : at + size])
        at, index = at + size, index + 1
