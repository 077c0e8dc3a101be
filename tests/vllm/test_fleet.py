"""A judge on two real servers, one of which dies in mid-batch and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from guerdon import Dispatcher
from tests.vllm.server import Server
from tests.vllm.test_judge import graded

# Different ones: identical calls in flight would be one request.
TEXTS = [f"{index} and {index}" for index in range(160)]


@pytest.fixture
def second(model: Path, tmp_path: Path) -> Iterator[Server]:
    """A second server of the same model."""
    server = Server(model, tmp_path / "log", adapters=False)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.mark.whole
@pytest.mark.fault(
    "one of two vLLM servers of a judge is killed in mid-batch and started again",
    sees="every sample's score; the server is asked again once it answers",
)
def test_one_of_two_servers_dies_in_mid_batch_and_comes_back(server: Server, second: Server, model: Path) -> None:
    """No sample is lost, each has the score that it has on a server that lives, and the one that
    was dead works again in the end."""
    with Dispatcher([graded(server, model)]) as dispatcher:
        expected = dispatcher.score(completions=TEXTS).rewards.ravel()
    urls = [f"{one.url}/v1" for one in (server, second)]
    asked = graded(server, model, base_url=urls, retries=3, keep_answers=True)
    with Dispatcher([asked]) as dispatcher:
        pending = dispatcher.submit(completions=TEXTS)
        next(iter(pending.groups()))
        second.kill()
        starting = threading.Thread(target=second.start)
        starting.start()
        try:
            result = pending.result(timeout=200)
        finally:
            starting.join()
        np.testing.assert_array_equal(result.rewards.ravel(), expected)
        before = dispatcher.endpoints("judge")[1].answered
        for _ in range(10):
            again = dispatcher.score(completions=TEXTS)
            np.testing.assert_array_equal(again.rewards.ravel(), expected)
            if dispatcher.endpoints("judge")[1].answered > before:
                break
            time.sleep(1)
        assert dispatcher.endpoints("judge")[1].answered > before
    assert set(result.extra["judge/answer"]) <= {"yes", "no"}
    used = result.usage["judge"]
    assert used["requests"] - used["unknown"] >= len(TEXTS)
    assert used["prompt_tokens"] > 0 < used["completion_tokens"]
