"""A dispatcher as `guerdon top` sees it: a Unix socket that answers with a state, and a state to
answer with. Run as a program it serves the state of a file, so that it can be stopped and
killed."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any


def correct(text: str, answer: str) -> float:
    return float(verify(float(text), float(answer)))


def verify(left: float, right: float) -> bool:
    return abs(left - right) < 1e-9


STACK = "".join(
    f'  File "{__file__}", line {each.__code__.co_firstlineno + 1}, in {each.__name__}\n' for each in (correct, verify)
)


def state(pid: int, rank: int | None = 0, **changes: Any) -> dict[str, Any]:
    """A busy dispatcher's."""
    spread = {"p50": 0.012, "p90": 0.8, "p99": 2.5}
    times = {"run_s": spread, "queue_s": spread}
    counts = {"ok": 1000, "timeout": 3, "error": 1}
    correct = {"name": "correct", "lane": "process", "open_cells": 300, "in_flight": 2, "counts": counts, "rate": 52.5}
    counts = {"ok": 80, "abstained": 2}
    helpful = {"name": "helpful", "lane": "http", "open_cells": 20, "in_flight": 1, "counts": counts, "rate": 4.0}
    asked = {"function": "helpful", "sample": 9, "seconds": 4.0, "stack": None}
    runs = {"function": "correct", "sample": 3, "seconds": 71.5, "stack": STACK, "samples": 1, "batch": 7}
    starts = {"function": "correct", "sample": 4, "seconds": 1.25, "stack": None, "samples": 8}
    replies = {"answered": 82, "failed": 7, "p50_s": 0.4}
    endpoint = {"function": "helpful", "url": "http://judge:8000/v1", "breaker": "open", "in_flight": 1}
    return {
        "version": "0.1.0",
        "pid": pid,
        "rank": rank,
        "host": "node7",
        "python": "3.11.9",
        "program": "/home/user/train.py",
        "started": 1.7e9,
        "functions": [correct | times, helpful | times],
        "workers": [{"pid": 501, "function": "correct"}, {"pid": 502, "function": None}],
        "in_flight": [
            asked | {"place": "judge:8000", "no_stack": "it waits for an answer"},
            runs | {"place": "501"},
            starts | {"place": "502"},
        ],
        "endpoints": [endpoint | replies],
        "stats": {"worker_restarts": 2, "kills": 1, "open_batches": 3},
        **changes,
    }


class FakeDispatcher:
    """Answers until it is closed; counts the questions."""

    def __init__(self, folder: Path, pid: int, answer: object = None, number: int = 0) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / f"{pid}-{number}.sock"
        self.answer = state(pid) if answer is None else answer
        self.asked = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self, *, leave_file: bool = False) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        if not leave_file:
            self.path.unlink()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60)
                if not connection.recv(1 << 12):
                    continue
                self.asked += 1
                body = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()
                head = f"HTTP/1.0 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)


if __name__ == "__main__":
    dispatcher = FakeDispatcher(Path(sys.argv[1]), os.getpid(), {**json.loads(sys.argv[2]), "pid": os.getpid()})
    print("ready", flush=True)
    sys.stdin.read()
    dispatcher.close()
