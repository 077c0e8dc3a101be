"""What listens at the address of a Ray cluster, without Ray."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from guerdon._lanes.remote.ray import connection

SETTINGS = b"\0\0\6\4\0\0\0\0\0" + b"\0\3\0\0\0\x64"


@contextlib.contextmanager
def listening(answer: bytes, *, closes: bool) -> Iterator[str]:
    """The address of what answers so."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted, contextlib.suppress(ConnectionError):
                accepted.recv(1 << 16)
                accepted.sendall(answer)
                while not closes and accepted.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.mark.fault(
    "Ray(address=…) names a port of something else, or a head that is stopped",
    sees="RegistrationError before any call, within 10 s",
)
@pytest.mark.parametrize(
    ("answer", "closes", "reason"),
    [
        (b"", False, "says nothing for 0.5 s"),
        (b"\0\0", False, "says nothing for 0.5 s"),
        (b"", True, "is no Ray: it answers b''"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, "is no Ray: it answers b'HTTP/1.1 '"),
        (b"-ERR unknown command\r\n", False, "is no Ray"),
    ],
    ids=["silent", "half", "closes", "http", "redis"],
)
def test_other_servers_than_ray_are_refused(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, closes: bool, reason: str
) -> None:
    monkeypatch.setattr(connection, "_ANSWER_S", 0.5)
    begun = time.monotonic()
    with listening(answer, closes=closes) as address, pytest.raises(OSError, match=reason):
        connection._knock(address)
    assert time.monotonic() - begun < 10, "bounded"


def test_http_2_servers_may_be_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(SETTINGS, closes=False) as address:
        connection._knock(address)
    connection._knock("auto")
    connection._knock("localhost")
