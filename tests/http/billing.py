"""A judge that sends a bill: what each answer cost, and faults by the question."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from typing import Any

from guerdon import Dispatcher, Limit
from tests.http.scoring import judging
from tests.http.server import chat_completion

PRICE = {"input": 2.0, "cached": 0.5, "output": 10.0}


class Billing:
    """Answers with a score; what it bills is added up in `tokens` and `requests`.

    A question names its faults, one an attempt: ``"12 500 words hang"`` is about sample 12, fails
    with 500, then answers without a number, then never in time, and then well.
    """

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        # A repair comes after the question.
        sample, *faults = str(body["messages"][0]["content"]).split()
        with self._lock:
            self._attempts[sample] += 1
            attempt = self._attempts[sample]
            fault = faults[attempt - 1] if attempt <= len(faults) else "none"
            self.requests[fault] += 1
        number = int(sample)
        used = {"prompt_tokens": 100 + number, "completion_tokens": 7 + attempt, "total_tokens": 107 + number + attempt}
        cached, reasoning = 50 + number % 50, attempt
        if fault == "500":
            return 500, {"error": "broken"}
        if fault == "429":
            return 429, {"error": "later"}
        if fault == "hang":
            time.sleep(3.0)
        if fault == "cut":
            return lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        if fault in ("none", "words"):
            with self._lock:
                self.tokens.update(used, cached_tokens=cached, reasoning_tokens=reasoning)
        text = "no idea" if fault == "words" else f"Score: {number % 10}"
        details = {
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        about = {"id": f"answer-{sample}-{attempt}", "model": "judge-2026", "usage": {**used, **details}}
        return {**chat_completion(text), **about}

    def cost(self) -> float:
        """What it bills, by `PRICE`."""
        tokens = self.tokens
        plain = tokens["prompt_tokens"] - tokens["cached_tokens"]
        parts = (plain, "input"), (tokens["cached_tokens"], "cached"), (tokens["completion_tokens"], "output")
        return sum(count * PRICE[kind] for count, kind in parts) / 1e6


def rank() -> None:
    """A rank that shares a cap: `python -m tests.http.billing URL SAMPLES`."""
    url, samples = sys.argv[1], int(sys.argv[2])
    limit = Limit(concurrency=4, key="shared-judge")
    price = {"input": 1990.1, "output": 0.0}  # 0.201 a call
    asked = judging(url, price=price, max_cost=float(os.environ["CAP"]), pure=False, limit=limit)
    with Dispatcher([asked], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["1"] * samples)
        print(int(result.usage["judge"]["requests"]), flush=True)
        sys.stdin.readline()  # the cap lives as long as a process that shares it


if __name__ == "__main__":
    rank()
