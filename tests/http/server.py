"""A server that judges, in this process: what the package sends to it, it keeps.
`python -m tests.http.server PORT` is one of its own."""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[[str, dict[str, Any]], Any]


_NUMBERS = itertools.count(os.getpid() * 50)


def free_port() -> int:
    """A port at which nothing listens, and at which nobody else will: none of those that the system
    gives to who asks for any."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for number in _NUMBERS:
        port = 10_000 + number % (max(11_000, lowest) - 10_000)
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError


class Server(ThreadingHTTPServer):
    """Answers with what `answer` makes of a path and a body: JSON, a status and JSON, or what then
    does something to the connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer: Answer, delay: float, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answer, self.delay = answer, delay
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Clients that are gone are no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        time.sleep(self.server.delay)
        found = self.server.answer(self.path, body)
        if callable(found):
            self.close_connection = True
            found(self)
            return
        status, reply = found if isinstance(found, tuple) else (200, found)
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(answer: Answer, delay: float = 0.0, port: int = 0) -> Iterator[Server]:
    with Server(answer, delay, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def chat_completion(text: str) -> dict[str, Any]:
    """A chat completion with this text."""
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"total_tokens": 7}}


def question(body: dict[str, Any]) -> str:
    """The last message of a chat completion's request."""
    return str(body["messages"][-1]["content"])


def one() -> None:
    """Judges the length of what it is asked about, on a port that is given, until it is killed;
    after so many seconds each, if that is given too."""
    delay = float(sys.argv[2]) if len(sys.argv) > 2 else 0.01
    with Server(
        lambda path, body: chat_completion(str(len(question(body)))), delay=delay, port=int(sys.argv[1])
    ) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    one()
