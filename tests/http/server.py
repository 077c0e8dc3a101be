"""A server that judges and keeps its requests, in this process or in a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.processes import started_python

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
        self.reply(*(found if isinstance(found, tuple) else (200, found)))

    def reply(self, status: int, reply: Any) -> None:
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if self.close_connection:
            self.send_header("Connection", "close")
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


def silent(handler: Handler) -> None:
    """Answers nothing until the client gives up."""
    handler.connection.recv(1)


def chat_completion(text: str) -> dict[str, Any]:
    """A chat completion with this text."""
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"total_tokens": 7}}


def question(body: dict[str, Any]) -> str:
    """The last message of a chat completion's request."""
    return str(body["messages"][-1]["content"])


class RequestCounter:
    """Counts the requests that are here at once, each for a moment.

    Attributes:
        most: The most requests so far.
        release: What a request waits for besides, for a minute at most.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._here = self.most = 0
        self._lock = threading.Lock()
        self.release = threading.Event()
        self.release.set()

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        with self._lock:
            self._here += 1
            self.most = max(self.most, self._here)
        self.release.wait(60)
        time.sleep(0.02)
        with self._lock:
            self._here -= 1
        return self._answer(path, body)


def length(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Judges the length of the question."""
    return chat_completion(str(len(question(body))))


def serve_alone() -> None:
    """Judges lengths at a port, each after a delay in seconds, until it is killed."""
    with Server(length, delay=float(sys.argv[2]), port=int(sys.argv[1])) as server:
        print("ready", flush=True)
        server.serve_forever()


@contextmanager
def server_process(port: int, delay: float = 0.01) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own that judges lengths."""
    program = "from tests.http.server import serve_alone; serve_alone()"
    with started_python(program, port, delay, says="ready", cwd=Path(__file__).parents[2]) as process:
        yield process
