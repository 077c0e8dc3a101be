"""``POST /score``: rewards, statuses and reasons, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.serve.serving import RunningServer, serving


def test_one_sample(served: RunningServer) -> None:
    answer = served.post("/score?function=correct", {"prompt": "1 + 1", "completion": "2", "label": "2"})
    assert (answer.status, answer.json) == (200, {"reward": 1.0, "status": "ok", "reason": None})
    total = served.post("/score", {"text": "22", "label": "22"}).json
    assert total == {"reward": 3.0, "status": "ok", "reason": None}


def test_every_status_is_reported(served: RunningServer) -> None:
    texts = ["a", "none", "hang", "raise", "die", "b"]
    answer = served.post("/score?function=correct", {"completions": texts, "label": ["a"] * 6}).json
    assert answer["rewards"] == [1.0, None, None, None, None, 0.0]
    assert answer["status"] == ["ok", "abstained", "timeout", "error", "crashed", "ok"]
    assert [reason is not None for reason in answer["reasons"]] == [False, False, True, True, True, False]
    assert "ValueError: odd text" in answer["reasons"][3]
    for text, status in zip(texts, answer["status"], strict=True):
        alone = served.post("/score?function=correct", {"completion": text, "label": "a"}).json
        assert alone["status"] == status
        assert (alone["reason"] is None) == (status in ("ok", "abstained"))


def test_the_total_of_a_failed_sample_names_the_function(served: RunningServer) -> None:
    answer = served.post("/score", {"completions": ["raise", "none"], "label": [None, None]}).json
    assert answer["status"] == ["error", "ok"], "of one function there is no opinion: the other's is the total"
    assert answer["rewards"] == [None, 4.0]
    assert answer["reasons"][0].startswith("correct: ValueError")


def test_odd_text_comes_through(served: RunningServer) -> None:
    odd = ["", "\ud800", "a\x00b", "\U0001f600" * 3, "\u2028", "x" * (1 << 20)]
    answer = served.post("/score?function=correct", {"completions": odd, "label": odd}).json
    assert answer["rewards"] == [1.0] * len(odd)


def test_conversations_are_completions(served: RunningServer) -> None:
    talk = [{"role": "assistant", "content": "four"}]
    sent = {"prompt": [{"role": "user", "content": "2 + 2?"}], "completion": talk, "label": "four"}
    assert served.post("/score?function=correct", sent).json["reward"] == 1.0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "no JSON"),
        (b"", "no JSON"),
        (b"\xff\xfe\xfa", "no JSON"),
        (b"[1]", "not a list"),
        (b"null", "not a null"),
        (b'{"completion": NaN}', "NaN is no JSON"),
        (b'{"completion": "a", "label": -Infinity}', "-Infinity is no JSON"),
        (b'{"completion": "a", "label": [1, -1e999]}', "-1e999 is beyond a float"),
        (b'{"completion": "a", "completion": "b"}', "'completion' is there twice"),
        (b'{"completion": "a", "label": {"x": 1, "x": 2}}', "'x' is there twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"completion": ' + b"9" * 5000 + b"}", "no JSON"),
        (b"{}", "expected 'completion'"),
        (b'{"completion": 5}', "text or a list of messages"),
        (b'{"completion": [{"content": "a"}]}', "message 0 of 'completion' has no 'role'"),
        (b'{"completion": [{"role": "assistant", "content": 5}]}', "'content' of message 0 of 'completion' has to be"),
        (b'{"completions": ["a"], "prompts": [[{"role": 5}]]}', "message 0 of 'prompts' has no 'role'"),
        (b'{"completions": "abc"}', "has to be a list"),
        (b'{"completions": []}', "is empty"),
        (b'{"completions": [null]}', "text or a list of messages"),
        (b'{"completions": ["a", "b"], "label": ["a"]}', "1 entries for 2 samples"),
        (b'{"completions": ["a"], "label": "a"}', "has to be a list"),
        (b'{"completions": ["a"], "prompt": "b"}', "with lists it is 'prompts'"),
        (b'{"completion": "a", "prompts": ["b"]}', "go with 'completions'"),
        (b'{"completion": "a", "trainer_state": {}}', "can't be a column"),
        (b'{"completion": "a", "batch_timeout": 1}', "can't be a column"),
        (b'{"completions": ["a"], "num_generations": 0}', "whole number of at least 1"),
        (b'{"completions": ["a"], "num_generations": true}', "whole number of at least 1"),
        (b'{"completions": ["a", "b", "c"], "num_generations": 2}', "num_generations"),
        (b'{"completion": "a", "num_generations": 2}', "a group has several samples"),
    ],
)
def test_unreadable_input_is_refused_with_advice(served: RunningServer, body: bytes, says: str) -> None:
    answer = served.post("/score", raw=body)
    assert answer.status == 400, answer.text
    assert says in answer.json["error"]


@pytest.mark.parametrize(
    ("query", "body", "says"),
    [
        pytest.param("num_generations=" + "1" * 5000, {"completions": ["a"]}, "whole number", id="5000 digits"),
        ("function=corect", {"completion": "a"}, "it has correct, length"),
    ],
)
def test_wrong_values_in_the_address_are_refused(served: RunningServer, query: str, body: Any, says: str) -> None:
    answer = served.post(f"/score?{query}", body)
    assert answer.status == 400
    assert says in answer.json["error"]


@pytest.mark.parametrize("path", ["/score", "/openrlhf", "/slime", "/verify"])
def test_an_unknown_option_in_the_address_is_refused(served: RunningServer, path: str) -> None:
    output = {"responses_create_params": {"input": "q"}, "response": {"output": []}}
    body = {"/verify": output, "/slime": {"response": "a"}, "/openrlhf": {"query": ["a"]}}.get(path, {"text": "a"})
    answer = served.post(path + "?functoin=correct", body)
    assert answer.status == 400, "the total would be another reward than was asked for"
    assert "'functoin' in the address" in answer.json["error"]
    assert "knows function" in answer.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/score", 405), ("PUT", "/slime", 405), ("POST", "/nowhere", 404), ("DELETE", "/health", 405)],
)
def test_wrong_methods_and_paths(served: RunningServer, method: str, path: str, status: int) -> None:
    answer = served.ask(method, path)
    assert answer.status == status
    assert "error" in answer.json
    assert status == 404 or answer.headers["allow"]


def test_a_form_is_refused(served: RunningServer) -> None:
    assert served.post("/score", raw=b'{"completion": "a"}', Content_Type="text/plain").status == 415


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip"])
def test_a_coded_body_is_refused(served: RunningServer, coding: str) -> None:
    answer = served.post("/score", raw=gzip.compress(b'{"completion": "a"}'), Content_Encoding=coding)
    assert answer.status == 415
    assert f"({coding}): send the JSON as it is" in answer.json["error"]
    assert served.post("/score", raw=b'{"text": "a"}', Content_Encoding="identity").status == 200


def test_groups(tmp_path: Path) -> None:
    texts = ["b", "a", "d", "c"]
    with serving(tmp_path, functions=":rank") as one:
        whole: dict[str, Any] = {"completions": texts, "prompts": ["p", "p", "q", "q"]}
        for body, query in (({**whole, "num_generations": 2}, ""), (whole, "?group_size=2")):
            assert one.post("/score" + query, body).json["rewards"] == [1.0, 0.0, 1.0, 0.0]
        assert one.post("/score?num_generations=4", whole).json["rewards"] == [1.0, 0.0, 3.0, 2.0]
        answer = one.post("/score", whole)
        assert answer.status == 400
        assert "'rank' works on whole groups" in answer.json["error"]
        assert "num_generations" in answer.json["error"]
        both = one.post("/score?group_size=4", {**whole, "num_generations": 2})
        assert both.status == 400, "two sizes"
        queries = {"query": texts, "prompts": [], "labels": []}
        assert one.post("/openrlhf?num_generations=2", queries).json["rewards"] == [1.0, 0.0, 1.0, 0.0]
        single = one.post("/slime", {"prompt": "p", "response": "a", "label": None})
        assert single.status == 400
        assert "gets single samples" in single.json["error"]
