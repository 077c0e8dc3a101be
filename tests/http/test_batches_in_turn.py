"""Batches as large as their limit, one after the other: each of their calls is sent at once."""

from __future__ import annotations

import threading
from typing import Any

from guerdon import Dispatcher, Limit, judge
from tests.http.server import chat_completion, serving

AT_ONCE = 32
BATCHES = 60


def test_no_call_waits_for_another_to_end() -> None:
    all_here = threading.Barrier(AT_ONCE)

    def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
        all_here.wait(20)  # nothing is answered before all have come
        return chat_completion("7")

    with (
        serving(answer) as server,
        Dispatcher(
            [
                judge(
                    base_url=server.url,
                    model="m",
                    prompt="{completion}",
                    limit=Limit(concurrency=AT_ONCE),
                    pure=False,
                    timeout=20,
                    retries=0,
                )
            ]
        ) as dispatcher,
    ):
        for _ in range(BATCHES):
            result = dispatcher.score(completions=["a"] * AT_ONCE)
            assert result.rewards.ravel().tolist() == [7.0] * AT_ONCE
