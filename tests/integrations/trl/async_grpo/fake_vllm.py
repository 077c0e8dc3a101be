"""A server that speaks as much of vLLM's HTTP as the asynchronous trainer uses, and fails as it is
told.

It answers with tokens that follow from the prompt and the request's seed. `Fault`s are handed out
in order, one a request to their path; a restart forgets the adapters and changes what tells two
servers apart, as a real one does.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EOS = 2


@dataclass(frozen=True)
class Fault:
    """In place of an answer: a status, a delay, a cut connection, or nonsense."""

    status: int = 0
    hang_s: float = 0.0
    cut: bool = False
    nonsense: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False  # the work is done, and only the answer lost


class FakeVLLM:
    """One such server on 127.0.0.1, started and stopped."""

    def __init__(self, *, lora: bool = True) -> None:
        self.lora = lora
        self.requests: list[tuple[str, dict[str, Any]]] = []  # path and body, in order of arrival
        self.adapters: set[str] = set()
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.paused = False
        self.slow_s = 0.0  # of a completion
        self.started = 1.0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Begins to listen, on the port it had before if it had one."""
        outer = self

        class Handler(_Handler):
            fake = outer

        self._released.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self) -> None:
        """Refuses connections from now on; cuts those there are."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        self._released.set()
        server.shutdown()
        self._thread.join()
        server.server_close()  # joins the threads of its connections

    def restart(self) -> None:
        """As a supervisor would: the same port, nothing remembered."""
        self.stop()
        self.adapters.clear()
        self.paused = False
        self.started += 1.0
        self.start()

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def seen(self, path: str, body: dict[str, Any]) -> Fault | None:
        with self._lock:
            self.requests.append((path, body))
            return self.faults[path].pop(0) if self.faults[path] else None

    def hang(self, seconds: float) -> None:
        self._released.wait(seconds)

    @property
    def going(self) -> bool:
        return not self._released.is_set()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and answer; text where it isn't JSON."""
        if path == "/metrics":
            return 200, f"# HELP\nprocess_start_time_seconds {self.started}\n"
        if path == "/v1/models":
            return 200, {"data": [{"max_model_len": 512}]}
        if path == "/server_info":
            return 200, {"vllm_config": {"model_config": {"dtype": "torch.float32"}}}
        if path == "/get_world_size":
            return 200, {"world_size": 1}
        if path == "/v1/load_lora_adapter":
            if body["lora_name"] in self.adapters:
                return 400, _error(f"The lora adapter '{body['lora_name']}' has already been loaded.")
            self.adapters.add(body["lora_name"])
            return 200, "Success"
        if path == "/v1/unload_lora_adapter":
            known = body["lora_name"] in self.adapters
            self.adapters.discard(body["lora_name"])
            return (200, "Success") if known else (404, _error("no such adapter"))
        if path in ("/pause", "/resume"):
            self.paused = path == "/pause"
            return 200, {}
        if path == "/v1/completions":
            return self._complete(body)
        return 200, {}

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.lora and body["model"] not in self.adapters:
            return 404, _error(f"The model `{body['model']}` does not exist.")
        if self.slow_s:
            self.hang(self.slow_s)
        tokens = [97 + (body["seed"] + sum(body["prompt"]) + place) % 26 for place in range(body["max_tokens"] - 1)]
        tokens.append(EOS)
        return 200, {"choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": [-1.0] * len(tokens)}}]}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeVLLM
    timeout = 5.0  # of a connection on which nothing is said

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path = self.path.partition("?")[0]
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(text) if text else {}
        fault = self.fake.seen(path, body)
        status, answer, headers = 200, None, {}
        if fault is None or fault.after:
            status, answer = self.fake.answer(path, body)
        if fault is not None:
            self.fake.hang(fault.hang_s)
            if fault.cut:
                self.close_connection = True
                return
            if fault.status:
                status, answer, headers = fault.status, _error("as told"), fault.headers
        content = b"<html>" if fault is not None and fault.nonsense else _encode(answer)
        if not self.fake.going:  # it was stopped meanwhile: cut
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            return


def _encode(answer: Any) -> bytes:
    return answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def wait_until(there: Any, seconds: float = 30.0) -> None:
    """Waits for a condition; fails if it does not come."""
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.01)
