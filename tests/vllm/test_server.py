"""The server that the other tests here use."""

from __future__ import annotations

import requests

from tests.vllm.server import Server


def ask(server: Server, **options: object) -> requests.Response:
    payload = {
        "model": str(server.model),
        "prompt": [5, 6, 7],
        "max_tokens": 4,
        "return_token_ids": True,
        "logprobs": 0,
    }
    return requests.post(f"{server.url}/v1/completions", json={**payload, **options}, timeout=120)


def test_it_completes_tokens_with_their_log_probabilities(server: Server) -> None:
    choice = ask(server, seed=1).json()["choices"][0]
    assert 1 <= len(choice["token_ids"]) <= 4
    assert len(choice["logprobs"]["token_logprobs"]) == len(choice["token_ids"])
    assert all(value < 0 for value in choice["logprobs"]["token_logprobs"])
    assert ask(server, seed=1).json()["choices"][0]["token_ids"] == choice["token_ids"]


def test_an_adapter_that_it_was_not_given_is_not_found(server: Server) -> None:
    assert ask(server, model="nobody-v1").status_code == 404
