"""A server that speaks as much of vLLM's HTTP as the rollout loop uses.

It answers with tokens that follow from the prompt and the request's seed.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EOS = 2


class FakeVLLM:
    """One such server on 127.0.0.1, started and stopped."""

    def __init__(self) -> None:
        self.requests: list[str] = []  # paths, in order of arrival
        self.slow_s = 0.0  # of a completion
        self._stopped = threading.Event()
        outer = self

        class Handler(_Handler):
            fake = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Refuses connections from now on; cuts those there are."""
        self._stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # joins the threads of its connections

    def complete(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None once the server has been stopped."""
        if self._stopped.wait(self.slow_s):
            return None
        tokens = [97 + (body["seed"] + sum(body["prompt"]) + place) % 26 for place in range(body["max_tokens"] - 1)]
        tokens.append(EOS)
        return {"choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": [-1.0] * len(tokens)}}]}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeVLLM
    timeout = 5.0  # of a connection on which nothing is said

    def do_GET(self) -> None:
        self.fake.requests.append(self.path)
        self._answer({})

    def do_POST(self) -> None:
        self.fake.requests.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        self._answer(self.fake.complete(body) if self.path == "/v1/completions" else {})

    def _answer(self, answer: dict[str, Any] | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            return


def wait_until(there: Any, seconds: float = 30.0) -> None:
    """Waits for a condition; fails if it does not come."""
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.01)
