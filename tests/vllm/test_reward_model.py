"""A tiny reward model behind the endpoints that vLLM has for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from guerdon import Dispatcher, Limit, judge
from tests.vllm.model import make_reward_model
from tests.vllm.server import Server
from tests.vllm.test_judge import TEXTS


@pytest.fixture(scope="module")
def rewards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rewards")
    server = Server(make_reward_model(folder / "model"), folder / "log", "--runner", "pooling", adapters=False)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def expected_rewards(folder: Path, texts: list[str]) -> list[float]:
    """Rewards that transformers computes with the same model, before an activation."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        return [float(model(**tokenizer(text, return_tensors="pt")).logits) for text in texts]


@pytest.mark.whole
@pytest.mark.parametrize("api", ["classify", "pooling", "score"])
def test_a_reward_model_scores(rewards: Server, api: Any) -> None:
    prompt: Any = ("{prompt}", "{completion}") if api == "score" else "{completion}"
    asked = judge(
        base_url=rewards.url, model=str(rewards.model), prompt=prompt, api=api, limit=Limit(concurrency=16), timeout=60
    )
    with Dispatcher([asked]) as dispatcher:
        result = dispatcher.score(prompts=["Why?"] * len(TEXTS), completions=TEXTS)
    found = result.rewards.ravel()
    assert not result.failures()
    assert result.usage["judge"]["prompt_tokens"] > len(TEXTS)
    if api != "score":
        # vLLM applies the activation of a classifier with one label.
        expected = torch.tensor(expected_rewards(rewards.model, TEXTS)).sigmoid()
        np.testing.assert_allclose(found, expected, atol=1e-3)
