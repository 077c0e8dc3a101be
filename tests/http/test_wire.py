"""Servers that are odd on the wire: each request is retried or failed in time, with its reason."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time

import pytest

from guerdon import Dispatcher, Status
from tests.faults import fault
from tests.http.scoring import judging, only, score
from tests.http.wire import ANSWER, BODY, Handle, good, head_of, request_of, wired

# More than the kernel keeps for a connection, on either side.
LONG = "x" * (24 << 20)


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    ("scheme", "handle", "reason"),
    [
        fault(
            "a judge's server resets connections in the TLS handshake",
            sees="`error` after `retries`: can't connect",
            of=("https:", reset, "can't connect to 127.0.0.1"),
        ),
        fault(
            "a judge's server closes connections that are in use, without an answer",
            sees="`error` after `retries`: it may have died of the request",
            of=("http:", request_of, "ConnectionError: 127.0.0.1"),
        ),
    ],
    ids=["TLS", "in use"],
)
def test_connections_that_are_closed_without_an_answer(scheme: str, handle: Handle, reason: str) -> None:
    with wired(handle) as wire:
        failure = only(score(wire.url.replace("http:", scheme)))
        assert (wire.connections, failure.attempts) == (2, 2)
    assert reason in failure.reason


@pytest.mark.fault(
    "a judge's server takes connections and reads nothing",
    sees="`timeout` after `timeout` seconds; the reason says that nothing came",
)
def test_a_server_that_reads_nothing() -> None:
    given_up = threading.Event()

    def deaf(connection: socket.socket) -> None:
        given_up.wait(60)

    with wired(deaf) as wire:
        failure = only(score(wire.url, [LONG], timeout=3.0, retries=0))
        given_up.set()
    assert failure.status is Status.TIMEOUT
    assert "had not answered" in failure.reason


@pytest.mark.fault(
    "a judge's server refuses a request before it has read it (413)",
    sees="`error` with its status, not tried again, though the request could not be sent to its end",
)
def test_an_answer_before_the_request_was_read() -> None:
    understood = threading.Event()

    def early(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
        understood.wait(60)  # hanging up at once would be a reset, which may overtake the answer

    with wired(early) as wire:
        failure = only(score(wire.url, [LONG]))
        understood.set()
    assert 'answered 413 Payload Too Large: "no!"' in failure.reason
    assert failure.attempts == 1


def chunked(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
    for at in range(0, len(BODY), 10):
        piece = BODY[at : at + 10]
        connection.sendall(b"%x;odd=1\r\n%s\r\n" % (len(piece), piece))
    connection.sendall(b"0\r\nX-Sum: 1\r\n\r\n")
    request_of(connection)  # the connection is used again
    connection.sendall(ANSWER)


def wordy(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(ANSWER.replace(b"\r\n", b"\r\nX-Long: " + b"x" * 100_000 + b"\r\n", 1))
    good(connection)


@pytest.mark.parametrize("handle", [chunked, wordy])
@pytest.mark.fault(
    "a judge's server sends interim answers, chunks with trailers, 100 kB of headers",
    sees="its value; the connection is used again",
)
def test_odd_answers_that_are_well_formed(handle: Handle) -> None:
    with wired(handle) as wire:
        with Dispatcher([judging(wire.url, retries=0)]) as dispatcher:
            for _ in range(2):
                assert dispatcher.score(completions=["x"]).rewards.item() == 7.0
        assert wire.connections == 1


@pytest.mark.fault(
    "a judge's server compresses its answer, which it was not asked for",
    sees="`error` after `retries`, and that it did so",
)
def test_an_answer_in_gzip() -> None:
    asked = []

    def zipped(connection: socket.socket) -> None:
        while True:
            asked.append(request_of(connection).lower())
            body = gzip.compress(BODY)
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(head + body)

    with wired(zipped) as wire:
        failure = only(score(wire.url))
    assert 'returned an answer in "gzip", an encoding that was not requested' in failure.reason
    assert b"\r\naccept-encoding: identity\r\n" in asked[0]


@pytest.mark.fault(
    "a judge's server closes a connection that rested, in the moment in which it is used again",
    sees="its value, at the first attempt: the request is sent once more by a new connection",
)
def test_a_connection_that_is_closed_when_it_is_used_again() -> None:
    def impatient(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(ANSWER)
        connection.recv(1)  # the next request begins to come, and the server hangs up

    with wired(impatient, good) as wire:
        with Dispatcher([judging(wire.url, retries=0)]) as dispatcher:
            assert dispatcher.score(completions=["x"]).rewards.item() == 7.0
            time.sleep(1.1)  # it rests for a second or more
            result = dispatcher.score(completions=["x"])
        assert wire.connections == 2
    assert (result.rewards.item(), result.attempts.item()) == (7.0, 1)
