"""What is kept of judges' answers, and what long ones take in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.http.scoring import asked
from tests.http.server import chat_completion

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        ({"id": "chatcmpl-1"}, "x-request-id", "chatcmpl-1"),
        ({}, "X-Request-Id", "req_7"),
        ({"id": None}, "request-id", "req_7"),
        ({}, "x-other", None),
    ],
)
def test_a_request_is_called_what_the_header_says_where_the_body_does_not(
    body: dict[str, Any], header: str, expected: str | None
) -> None:
    text = json.dumps({**chat_completion("7"), **body})
    head = f"HTTP/1.1 200 OK\r\n{header}: req_7\r\nContent-Length: {len(text)}\r\n\r\n"
    result, _ = asked(lambda path, body: lambda handler: handler.wfile.write((head + text).encode()), keep_answers=True)
    assert result.extra["judge/request_id"] == [expected]


LONGEST = 16 << 20
SERVER = """
import sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        head, end = b'{"choices": [{"message": {"content": "', b'. Score: 7"}}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(LENGTH))
        self.end_headers()
        self.wfile.write(head)
        left, piece = LENGTH - len(head) - len(end), b"word " * 4096
        while left:
            left -= self.wfile.write(piece[:left])
        self.wfile.write(end)

    def log_message(self, *_): ...

LENGTH = int(sys.argv[1])
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.fault(
    "a judge's answer is as long as any that is read, 16 MB",
    sees="it is scored; it takes a small multiple of its length in memory, and at most eight such answers are read at a time",
)
def test_the_longest_answer_takes_bounded_memory() -> None:
    """Its body and its text are there at once."""
    ask = """
import resource, sys
from guerdon import Dispatcher, Limit, judge
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
made = judge(base_url=sys.argv[1], model="m", prompt="{completion}", timeout=100, retries=0, limit=Limit(concurrency=1))
with Dispatcher([made]) as dispatcher:
    dispatcher.endpoints("judge").set(sys.argv[1])  # starts the engine
    before = peak()
    result = dispatcher.score(completions=[f"x{index}" for index in range(2)])
    assert result.rewards.ravel().tolist() == [7.0] * 2, [one.reason for one in result.failures()][:1]
    print(peak() - before)
"""
    command = [sys.executable, "-c", SERVER, str(LONGEST - 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
            ran = subprocess.run(
                [sys.executable, "-c", ask, url], cwd=ROOT, capture_output=True, text=True, timeout=120
            )
        finally:
            server.kill()
    assert ran.returncode == 0, ran.stderr
    print(f"{int(ran.stdout) / 2**20:.0f} MB")
    assert int(ran.stdout) < 4 * LONGEST
