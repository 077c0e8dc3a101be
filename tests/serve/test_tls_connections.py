"""Clients that connect to a server with TLS and do not come to speak it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from guerdon._serve.tls_connections import TlsConnections
from tests.serve.serving import Served, make_certificate, serving


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, ssl.SSLContext]]:
    folder = tmp_path_factory.mktemp("secure")
    certificate, key = make_certificate(folder)
    options = ("--tls-cert", certificate, "--tls-key", key)
    with serving(folder, *options, functions=":length", ulimit="-n 400") as one:
        yield one, ssl.create_default_context(cafile=str(certificate))


def is_alive(secure: tuple[Served, ssl.SSLContext]) -> bool:
    one, context = secure
    return httpx.get(one.url + "/health", verify=context, timeout=20).status_code == 200


@pytest.mark.fault(
    "clients without a token connect to a server with TLS and say nothing, more than it has descriptors",
    sees="nothing: the oldest of them are closed, others are answered meanwhile",
)
def test_silent_connections_keep_nobody_out(secure: tuple[Served, ssl.SSLContext]) -> None:
    with ExitStack() as connections:
        silent = [
            connections.enter_context(socket.create_connection(("127.0.0.1", secure[0].port), timeout=20))
            for _ in range(500)
        ]
        assert is_alive(secure)
        assert silent[0].recv(1) == b"", "the oldest has been closed"
    assert is_alive(secure)


@pytest.mark.fault(
    "a client speaks plain HTTP, or no TLS at all, to a server with TLS",
    sees="its connection is closed; nothing is logged, others are answered",
)
@pytest.mark.parametrize(
    "sent", [b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\x05junk!", b"\0" * 400, b""]
)
def test_what_is_no_tls_is_closed(secure: tuple[Served, ssl.SSLContext], sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", secure[0].port), timeout=20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        try:
            found = connection.recv(1 << 16)
        except ConnectionResetError:
            found = b""
    assert b"HTTP" not in found
    assert is_alive(secure)


def test_a_handshake_does_not_delay_the_end(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with (
        serving(tmp_path, "--tls-cert", certificate, "--tls-key", key, functions=":length") as one,
        socket.create_connection(("127.0.0.1", one.port), timeout=20),
    ):
        time.sleep(0.2)
        assert one.end() == (0, "")


def test_a_flood_leaves_no_more_than_there_may_be() -> None:
    most, flood = 4, 100

    async def closed_of(clients: list[socket.socket], listening: socket.socket) -> int:
        connections = TlsConnections(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.Protocol, most)
        connections.start([listening])
        loop = asyncio.get_running_loop()
        reads = [asyncio.ensure_future(loop.sock_recv(one, 1)) for one in clients]
        closed, waiting = await asyncio.wait(reads, timeout=3.0)
        for read in waiting:
            read.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await connections.stop()
        return len(closed)

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2 * flood))
        listening.setblocking(False)
        clients = [stack.enter_context(socket.create_connection(listening.getsockname())) for _ in range(flood)]
        for one in clients:
            one.setblocking(False)
        assert asyncio.run(closed_of(clients, listening)) == flood - most
