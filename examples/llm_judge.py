"""An LLM judge in Python: an async reward with retries and bounded concurrency.

`guerdon.judge` does this without Python per request; write your own where you need another
protocol. The judge here is a fake on a local port: it takes 0.2 s, is overloaded now and then
(503), and grades by length. Put your own endpoint and prompt in its place.

    python examples/llm_judge.py
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from guerdon import Dispatcher, Limit, StatefulReward, reward

SAMPLES = 200


class Judge(StatefulReward):
    """Sends requests to the judge at ``host:port``; open long-lived clients in ``setup()``."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def score(self, prompt: str, completion: str) -> dict[str, float | str]:
        answer = await self.ask({"question": prompt, "answer": completion})
        return {"score": answer["grade"] / 10, "comment": answer["comment"]}  # the rest is logged

    async def ask(self, question: dict[str, str]) -> dict:
        """One HTTP request, by hand: use the client of your judge."""
        body = json.dumps(question).encode()
        head = f"POST /judge HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(head.encode() + body)
            head_line, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        status = head_line.split(b" ", 2)[1]
        if status != b"200":
            raise ConnectionError(f"the judge answered {status.decode()}")  # retried
        return json.loads(answer)


def main() -> None:
    with judge_server() as (host, port):
        judge = reward(Judge(host, port), name="judge", timeout=10, retries=5, limit=Limit(concurrency=64))
        with Dispatcher([judge]) as dispatcher:
            start = time.perf_counter()
            result = dispatcher.score(
                prompts=["Why is the sky blue?"] * SAMPLES,
                completions=["Because of Rayleigh scattering. " * (i % 10) for i in range(SAMPLES)],
                num_generations=10,
            )
            took = time.perf_counter() - start
    print(result)
    print(f"{SAMPLES} answers of 0.2 s in {took:.1f} s, {int(result.timings['judge']['retries'])} retries")
    print("first comments:", result.extra["judge/comment"][:3])


@contextmanager
def judge_server() -> Iterator[tuple[str, int]]:
    """A judge on a port of this machine."""
    calls = iter(range(1_000_000))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["answer"]
            time.sleep(0.2)
            if next(calls) % 20 == 0:
                self.send_error(503, "overloaded")
                return
            grade = min(10, len(answer) // 30)
            reply = {"grade": grade, "comment": "thorough" if grade > 5 else "too short"}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[0], server.server_address[1]
        finally:
            server.shutdown()


if __name__ == "__main__":
    main()
