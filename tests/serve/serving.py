"""A `guerdon serve` in a process of its own, and what talks to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guerdon._serve.app import make_app
from guerdon._serve.counters import Counters
from guerdon._serve.drain import Drain
from guerdon._serve.permits import Permits
from guerdon._serve.settings import ServerSettings

REWARDS = """
import os
import time
from guerdon import group_reward, reward

@reward(timeout=3.0)
def correct(text: str, label: object = None) -> float | None:
    match text:
        case "none":
            return None
        case "hang":
            time.sleep(60)
        case "raise":
            raise ValueError("odd text")
        case "die":
            os._exit(3)
        case "nap":
            time.sleep(0.1)
    return float(text == label)

@reward(lane="thread")
def length(text: str) -> float:
    return float(len(text))

@group_reward(lane="thread")
def rank(texts: list[str]) -> list[float]:
    return [float(sorted(texts).index(text)) for text in texts]
"""


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class RunningServer:
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if sent is not None:
            named.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, sent, named)
            got = connection.getresponse()
            return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read().decode())
        finally:
            connection.close()

    def post(self, path: str, body: object = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def metric(self, name: str, **headers: str) -> float:
        """The sum of a metric's series."""
        text = self.ask("GET", "/metrics", **headers).text
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith((name + " ", name + "{"))
        )

    def end(self, sign: int = signal.SIGTERM, patience: float = 60.0) -> tuple[int, str]:
        """Sends a signal and waits; the exit code, and what stderr had after its first line."""
        self.process.send_signal(sign)
        return self.wait(patience)

    def wait(self, patience: float = 60.0) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=patience)
        return self.process.returncode, errors


@contextmanager
def serving(
    folder: Path,
    *options: object,
    functions: str = ":correct,length",
    text: str = REWARDS,
    ulimit: str = "",
    **environment: str,
) -> Iterator[RunningServer]:
    """Serves the functions of `text` on a free port; `ulimit` are options of that command."""
    file = folder / f"served_{abs(hash((str(folder), text))):x}.py"
    file.write_text(text)
    limited = ["sh", "-c", f'ulimit {ulimit} && exec "$@"', "sh"] if ulimit else []
    command = [*limited, sys.executable, "-m", "guerdon", "serve", f"{file}{functions}", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--workers", "2", *map(str, options)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"at http://[^ ]*:(\d+)$", first.strip())
        if found is None:
            raise AssertionError(first + process.communicate(timeout=60)[1])
        yield RunningServer(process, int(found[1]))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stderr is not None:
            process.stderr.close()


async def answer_of(
    dispatcher: Any, path: str, body: bytes, *, method: str = "POST", drain: Drain | None = None
) -> tuple[Answer, str]:
    """The application's answer to a request without a server, and its metrics."""
    permits = Permits(8, 64 << 20)
    counters = Counters(permits)
    app = make_app(dispatcher, ServerSettings(), drain or Drain(), permits, counters)
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers, "root_path": ""}
    sent: list[Any] = []
    bodies = [body]

    async def receive() -> Any:
        if not bodies:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, sent[1]["body"].decode()), counters.text()
