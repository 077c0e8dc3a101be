"""Judges on real servers: scores, many at a time, and a server that dies in mid-batch, alone and as
one of two."""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Limit, RewardBatch, judge, parse
from tests.vllm.server import Server

PROMPT = "Is this right? {completion} Answer:"
TEXTS = [f"{index} and {index}" for index in range(48)]


def ask(server: Server, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{server.url}/v1/{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("api", ["chat", pytest.param("completions", marks=pytest.mark.whole)])
def test_log_probabilities_are_those_of_the_server(server: Server, model: Path, api: Any) -> None:
    first = PROMPT.format(completion=TEXTS[0])
    body: dict[str, Any] = {"model": str(model), "max_tokens": 1, "temperature": 0}
    if api == "chat":
        body |= {"messages": [{"role": "user", "content": first}], "logprobs": True, "top_logprobs": 5}
        found = ask(server, "chat/completions", body)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        likely = {each["token"]: each["logprob"] for each in found}
    else:
        found = ask(server, "completions", {**body, "prompt": first, "logprobs": 5})
        likely = found["choices"][0]["logprobs"]["top_logprobs"][0]
    token = next(token for token in likely if token.strip())
    same = math.fsum(math.exp(logprob) for other, logprob in likely.items() if other.strip() == token.strip())
    soft = judge(
        base_url=f"{server.url}/v1",
        model=str(model),
        prompt=PROMPT,
        api=api,
        parse=parse.logprob(token, top=5),
        timeout=60,
    )
    with Dispatcher([soft]) as dispatcher:
        result = dispatcher.score(completions=TEXTS[:1] * 4)
    np.testing.assert_allclose(result.rewards.ravel(), same, rtol=0.02)


def graded(server: Server, model: Path, **options: Any) -> Any:
    """A judge whose answer the server holds to two words."""
    return judge(
        base_url=options.pop("base_url", f"{server.url}/v1"),
        model=str(model),
        prompt=PROMPT,
        parse=parse.yes_no(),
        max_tokens=8,
        body={"structured_outputs": {"choice": ["yes", "no"]}},
        limit=Limit(concurrency=16),
        timeout=120,
        **options,
    )


def score_across_a_kill(dispatcher: Dispatcher, texts: list[str], server: Server, timeout: float) -> RewardBatch:
    """Scores a batch in the middle of which a server is killed and started again."""
    pending = dispatcher.submit(completions=texts)
    next(iter(pending.groups()))
    server.kill()
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        return pending.result(timeout=timeout)
    finally:
        starting.join()


def test_many_at_a_time_and_a_server_that_dies_in_mid_batch(server: Server, model: Path) -> None:
    """No sample is lost, and each has the score that it has on a server that lives."""
    with Dispatcher([graded(server, model)]) as dispatcher:
        expected = dispatcher.score(completions=TEXTS).rewards.ravel()
    assert np.isin(expected, [0.0, 1.0]).all()
    with Dispatcher([graded(server, model, retries=100)]) as dispatcher:
        result = score_across_a_kill(dispatcher, TEXTS * 4, server, timeout=400)
    np.testing.assert_array_equal(result.rewards.ravel(), np.tile(expected, 4))
    assert result.attempts.max() > 1


@pytest.fixture
def second(model: Path, tmp_path: Path) -> Iterator[Server]:
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
    # Different ones: identical calls in flight would be one request.
    texts = [f"{index} and {index}" for index in range(160)]
    with Dispatcher([graded(server, model)]) as dispatcher:
        expected = dispatcher.score(completions=texts).rewards.ravel()
    urls = [f"{one.url}/v1" for one in (server, second)]
    asked = graded(server, model, base_url=urls, retries=3, keep_answers=True)
    with Dispatcher([asked]) as dispatcher:
        result = score_across_a_kill(dispatcher, texts, second, timeout=200)
        np.testing.assert_array_equal(result.rewards.ravel(), expected)
        before = dispatcher.endpoints("judge")[1].answered
        for _ in range(10):
            again = dispatcher.score(completions=texts)
            np.testing.assert_array_equal(again.rewards.ravel(), expected)
            if dispatcher.endpoints("judge")[1].answered > before:
                break
            time.sleep(1)
        assert dispatcher.endpoints("judge")[1].answered > before
    assert set(result.extra["judge/answer"]) <= {"yes", "no"}
    used = result.usage["judge"]
    assert used["requests"] - used["unknown"] >= len(texts)
    assert used["prompt_tokens"] > 0 < used["completion_tokens"]
