"""What clients do to a server: odd HTTP, huge, slow and endless bodies, clients that vanish."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from guerdon._serve.address import listen
from guerdon._serve.errors import RequestError
from guerdon._serve.permits import Permits
from tests.clock import eventually as until
from tests.serve.serving import RunningServer, serving

MEGABYTE = 1 << 20


def connect(served: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=60)


def request(
    body: bytes, *, version: str = "1.1", more: str = "", length: int | None = None, path: str = "/score"
) -> bytes:
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def sample(text: str, label: str | None = None) -> bytes:
    return json.dumps({"completion": text, "label": text if label is None else label}).encode()


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes it."""
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found


def read_until(connection: socket.socket, end: bytes, times: int = 1) -> bytes:
    found = b""
    while found.count(end) < times:
        piece = connection.recv(1 << 16)
        assert piece, found
        found += piece
    return found


def test_http_1_0(served: RunningServer) -> None:
    with connect(served) as connection:
        connection.sendall(request(sample("4"), version="1.0"))
        found = read_all(connection)
    assert found.split(b" ", 2)[1] == b"200"
    assert found.endswith(b'{"reward":2.0,"status":"ok","reason":null}')


def test_pipelined_requests_are_answered_in_order(served: RunningServer) -> None:
    texts = ["nap", "a", "bb", "ccc", "nap", "dddd"]
    with connect(served) as connection:
        connection.sendall(b"".join(request(sample(text), path="/score?function=length") for text in texts))
        found = read_until(connection, b'"reason":null}', len(texts)).decode()
    rewards = [float(part.split(",")[0]) for part in found.split('"reward":')[1:]]
    assert rewards == [float(len(text)) for text in texts]


CHUNKED = (
    b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def test_chunked_bodies(served: RunningServer) -> None:
    body = sample("4")
    with connect(served) as connection:
        connection.sendall(CHUNKED)
        for start in range(0, len(body), 7):
            piece = body[start : start + 7]
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert b'"reward":2.0' in read_until(connection, b"}")


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /score HTTP/9.9\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: -4\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        b"POST /score HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * (1 << 20) + b"\r\n\r\n",
    ],
    ids=["tls", "one word", "version", "negative length", "two lengths", "endless header"],
)
def test_other_protocols_than_http_are_refused(served: RunningServer, junk: bytes) -> None:
    with connect(served) as connection:
        try:
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            found = read_all(connection)
        except OSError:  # reset, or gone already
            found = b""
    assert b" 200 " not in found
    assert served.ask("GET", "/health").status == 200


@pytest.mark.fault(
    "a client without a token sends headers without end", sees="400 after some KB, whatever HTTP parsers are installed"
)
def test_heads_are_bounded_where_httptools_is_installed(tmp_path: Path) -> None:
    (tmp_path / "httptools.py").write_text("class HttpRequestParser:\n    feed_data = lambda *_: None\n")
    line = b"x-" + b"y" * 1000 + b": z\r\n"
    places = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with serving(tmp_path, PYTHONPATH=places) as one, connect(one) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        sent = 0
        try:
            while sent < 64 * MEGABYTE:
                connection.sendall(line * 100)
                sent += len(line) * 100
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert sent < 32 * MEGABYTE
        assert one.ask("GET", "/health").status == 200


@pytest.mark.fault("a client announces a body of 65 MB", sees="413 before it is sent; the server reads none of it")
def test_a_huge_body_is_refused_before_it_comes(served: RunningServer) -> None:
    with connect(served) as connection:
        connection.sendall(request(b"", length=65 * MEGABYTE, more="Expect: 100-continue\r\n"))
        found = read_until(connection, b"}")
    assert found.split(b" ", 2)[1] == b"413"
    assert b"100 Continue" not in found
    assert b"send fewer samples a request" in found


@pytest.mark.fault(
    "a client sends a body without end, in chunks", sees="413 once 64 MB are here; the server's memory stays bounded"
)
def test_an_endless_body_is_refused_while_it_comes(served: RunningServer) -> None:
    piece = b"100000\r\n" + b" " * MEGABYTE + b"\r\n"
    sent = 0
    with connect(served) as connection:
        connection.sendall(CHUNKED)
        try:
            while sent < 400:
                connection.sendall(piece)
                sent += 1
        except (ConnectionResetError, BrokenPipeError):
            pass
        found = connection.recv(1 << 16) if sent < 400 else b""
    assert 64 <= sent < 400
    assert found.split(b" ", 2)[1] == b"413"
    until(lambda: served.metric("guerdon_serve_body_bytes") == 0)


def test_a_body_of_60_mb_is_read(served: RunningServer) -> None:
    text = "x" * (60 * MEGABYTE)
    assert served.post("/score?function=length", {"completion": text}).json["reward"] == float(len(text))
    assert served.metric("guerdon_serve_body_bytes") == 0


def test_a_big_answer_is_whole(served: RunningServer) -> None:
    output = [{"type": "message", "role": "assistant", "content": "hi"}]
    row = {"responses_create_params": {"input": "q"}, "response": {"output": output}, "x": "a" * MEGABYTE}
    assert served.post("/verify", row).json["x"] == row["x"]


@pytest.mark.fault(
    "a client closes its connection while its samples are scored", sees="its calls are cancelled, those of others go on"
)
def test_the_work_of_a_client_that_has_gone_is_cancelled(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "cancelled"
    text = f"""
import asyncio
from guerdon import reward

@reward(timeout=600)
async def slow(text: str) -> float:
    with open({str(begun)!r}, "a") as file:
        file.write(text + " ")
    try:
        await asyncio.sleep(0 if text == "quick" else 300)
    except asyncio.CancelledError:
        with open({str(ended)!r}, "a") as file:
            file.write(text + " ")
        raise
    return 1.0
"""

    def count(log: Path, text: str) -> int:
        return log.read_text().split().count(text) if log.exists() else 0

    with serving(tmp_path, functions="", text=text) as one:
        with connect(one) as connection:
            connection.sendall(request(sample("alone")))
            until(lambda: count(begun, "alone") == 1)
        until(lambda: count(ended, "alone") == 1)
        with connect(one) as connection:
            connection.sendall(request(json.dumps({"completions": ["many"] * 50}).encode()))
            until(lambda: count(begun, "many") == 50)
        until(lambda: count(ended, "many") == 50)
        until(lambda: one.metric("guerdon_serve_samples_in_flight") == 0)
        # Two that come together, and may share a batch: one goes, the other stays.
        first, second = connect(one), connect(one)
        with first, second:
            first.sendall(request(sample("first")))
            second.sendall(request(sample("second")))
            until(lambda: count(begun, "first") == count(begun, "second") == 1)
            first.close()
            until(lambda: count(ended, "first") == 1)
            assert one.post("/score", {"text": "quick"}).json["reward"] == 1.0
            assert count(ended, "second") == 0
        until(lambda: count(ended, "second") == 1)
        assert one.metric('guerdon_serve_requests_total{path="/score",status="gone"}') == 4


@pytest.mark.fault("a client vanishes in the middle of a body", sees="nothing: what had come is dropped")
def test_a_client_that_vanishes_in_its_body(served: RunningServer) -> None:
    for _ in range(20):
        with connect(served) as connection:
            connection.sendall(request(b"{", length=MEGABYTE))
    until(lambda: served.metric("guerdon_serve_body_bytes") == 0)
    assert served.post("/score", {"completion": "4", "label": "4"}).json["reward"] == 2.0


def test_connections_have_the_options_of_their_listener() -> None:
    """A client whose machine died would hold what had come of a body for ever, and each answer on a
    kept connection would take 40 ms."""
    (listening,) = listen("127.0.0.1", 0, has_token=False)
    with listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            idle, interval, count = (
                accepted.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
    assert idle + interval * count <= 120


def test_more_samples_than_may_be_in_flight_get_429(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-samples", "8", functions=":correct") as one:
        never = one.post("/score", {"completions": ["a"] * 9})
        assert never.status == 413
        assert "--max-samples" in never.json["error"]
        with connect(one) as connection:
            connection.sendall(request(json.dumps({"completions": ["hang"] * 8}).encode()))
            until(lambda: one.metric("guerdon_serve_samples_in_flight") == 8)
            answer = one.post("/score", {"completion": "a"})
            assert answer.status == 429
            assert answer.headers["retry-after"] == "1"
        until(lambda: one.metric("guerdon_serve_samples_in_flight") == 0)
        assert one.post("/score", {"completion": "a", "label": "a"}).status == 200


def test_a_declared_length_takes_little_until_the_body_comes(served: RunningServer) -> None:
    connections = [connect(served) for _ in range(4)]
    try:
        for one in connections:
            one.sendall(request(b"{", length=60 * MEGABYTE))
        until(lambda: served.metric("guerdon_serve_body_bytes") > 0)
        time.sleep(0.2)
        assert served.metric("guerdon_serve_body_bytes") <= 4 * MEGABYTE
    finally:
        for one in connections:
            one.close()
    until(lambda: served.metric("guerdon_serve_body_bytes") == 0)


def test_unread_bodies_are_bounded_together() -> None:
    permits = Permits(8, 100)
    with permits.take_bytes() as first, permits.take_bytes() as second:
        first(150)  # alone, whatever it takes
        with pytest.raises(RequestError) as refused:
            second(1)
        assert refused.value.status == 429
    assert permits.bytes == 0
