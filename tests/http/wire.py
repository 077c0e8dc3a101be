"""A server by the byte: what it does with each connection is a function of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Handle = Callable[[socket.socket], object]

BODY = b'{"choices": [{"message": {"content": "Score: 7"}}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


@dataclass
class Wire:
    port: int
    connections: int = 0
    open: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def head_of(connection: socket.socket) -> bytes:
    """The head of the next request; what came of its body with it is dropped."""
    head = b""
    while b"\r\n\r\n" not in head:
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionError
        head += more
    return head.partition(b"\r\n\r\n")[0]


def request_of(connection: socket.socket) -> bytes:
    """The whole of the next request."""
    found = b""
    while True:
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionError
        found += more
        head, mark, body = found.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        if mark and len(body) >= int(lengths[0]):
            return found


def good(connection: socket.socket) -> None:
    while True:
        request_of(connection)
        connection.sendall(ANSWER)


@contextmanager
def wired(*handles: Handle) -> Iterator[Wire]:
    """Handles connections in turn, all later ones as the last; a connection is closed when its
    handle is done."""

    def handle(connection: socket.socket, what: Handle) -> None:
        with connection, suppress(OSError):
            what(connection)

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = listener.accept()
                wire.open.append(connection)
                what = handles[min(wire.connections, len(handles) - 1)]
                wire.connections += 1
                threads.append(threading.Thread(target=handle, args=(connection, what)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        wire = Wire(listener.getsockname()[1])
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield wire
        finally:
            for each in [listener, *wire.open]:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
