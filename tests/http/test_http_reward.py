"""`guerdon.http_reward`: reward services behind a URL."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from guerdon import DataError, Dispatcher, Limit, http_reward, judge, reward
from tests.http.scoring import asked, scored
from tests.http.server import chat_completion, question, serving


def posted(answer: Any, completions: list[str], sent: Any = ("completion",), **options: Any) -> Any:
    """The result of a batch by a service that gets the columns `sent`, and its server."""
    return asked(answer, completions, make=partial(http_reward, columns=sent), **options)


def lengths(path: str, body: dict[str, Any]) -> Any:
    return {"rewards": [None if text == "none" else len(text) for text in body["completions"]]}


def test_one_sample_a_request() -> None:
    result, server = posted(
        lambda path, body: {"score": len(body["completion"]) + body["answer"]["n"], "why": "x"},
        ["ab", "cde"],
        sent=["prompt", "completion", "answer"],
        columns={"prompts": ["p", "p"], "answer": [{"n": 1}, {"n": np.int64(2)}]},
    )
    assert result.rewards.ravel().tolist() == [3.0, 5.0]
    assert {"prompt": "p", "completion": "ab", "answer": {"n": 1}} in server.bodies


def test_many_samples_a_request() -> None:
    texts = ["x" * index for index in range(20)] + ["none"]
    result, server = posted(lengths, texts, batch_size=8, body={"kind": "length"})
    np.testing.assert_array_equal(result.rewards.ravel(), [*range(20), np.nan])
    sizes = [len(body["completions"]) for body in server.bodies if body["kind"] == "length"]
    assert sizes in ([8, 8, 5], [8, 5, 8], [5, 8, 8])


def test_a_request_of_more_tokens_than_a_minute_has_is_halved_until_it_fits() -> None:
    limit = Limit(tpm=600_000, tokens=lambda completion: 10 ** len(completion))
    texts = ["x", "xx", "x" * 300, "xxx"] * 2 + ["x" * 6]
    result, server = posted(lambda path, body: [1.0] * len(body["completions"]), texts, batch_size=9, limit=limit)
    sent = sorted(text for body in server.bodies for text in body["completions"])
    assert sent == ["x"] * 2 + ["xx"] * 2 + ["xxx"] * 2
    np.testing.assert_array_equal(result.rewards.ravel(), [1, 1, np.nan, 1] * 2 + [np.nan])


def test_services_with_names_and_shapes_of_their_own() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return {
            "data": [
                {"label": "ok", "score": len(query) * label}
                for query, label in zip(body["query"], body["label"], strict=True)
            ]
        }

    columns = {"query": "completion", "label": "answer"}
    with serving(answer) as server:
        service = http_reward(server.url, batch_size=4, columns=columns, score="data.*.score")
        result = scored([service, reward(lambda text: 1.0, name="one", lane="thread")], ["ab", "c"], answer=[2, 3])
    assert result.rewards[:, 0].tolist() == [[4.0, 1.0], [3.0, 1.0]]


def test_a_group_at_a_time_and_in_order() -> None:
    with (
        serving(lambda path, body: len(body["completion"]), delay=0.01) as server,
        Dispatcher([http_reward(server.url, columns=["completion"])]) as dispatcher,
    ):
        texts = ["x" * (index % 7) for index in range(64)]
        pending = dispatcher.submit(completions=texts, num_generations=8)
        for group in pending.groups():
            expected = [len(text) for text in texts[group.index * 8 :][:8]]
            assert group.rewards[:, 0].tolist() == expected


def test_values_without_json_are_refused_before_any_request() -> None:
    service = http_reward("http://127.0.0.1:9", columns=["completion", "answer"])
    with pytest.raises(DataError, match="'answer' of sample 0 can't go into a request of 'http_reward'"):
        scored(service, answer=[object()])
    with pytest.raises(DataError, match="Out of range float"):
        scored(service, answer=[float("nan")])


def test_an_open_batch_brings_what_it_likes() -> None:
    """Texts in one addition, lists in another: the service gets each as it is."""
    with serving(judge_of_length) as server:
        service = http_reward(server.url, columns=["completion", "answer"], batch_size=4, name="service")
        graded = judge(base_url=server.url, model="m", prompt="{completion}|{answer}")
        with Dispatcher([service, graded]) as dispatcher:
            pending = dispatcher.stream(num_generations=2)
            pending.add(completions=["ab", "cde"], answer=["x", "yz"])
            pending.add(completions=["f", "é"], answer=[[1], [1, 2, 3]])
            pending.finish()
            rewards = pending.result().rewards
    assert rewards[:, :, 0].ravel().tolist() == [3.0, 5.0, 2.0, 4.0]
    assert rewards[:, :, 1].ravel().tolist() == [4.0, 6.0, 5.0, 11.0]


def judge_of_length(path: str, body: dict[str, Any]) -> Any:
    if path.endswith("/chat/completions"):
        return chat_completion(str(len(question(body))))
    return [len(text) + len(answer) for text, answer in zip(body["completions"], body["answer"], strict=True)]


@pytest.mark.parametrize("fault", [(400, {"error": "bad input"}), (500, {}), {"rewards": [1.0]}], ids=str)
@pytest.mark.fault(
    "a reward service fails a request of many samples for the sake of one (400, 422, 500, an answer that makes no sense)",
    sees="`error` of that sample alone: the request is made again in halves",
)
def test_a_bad_sample_fails_alone(fault: Any) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return fault if "bad" in body["completions"] else lengths(path, body)

    texts = ["x" * index for index in range(16)]
    texts[5] = "bad"
    result, server = posted(answer, texts, batch_size=16)
    alone = isinstance(fault, dict)  # of one sample it is a whole answer
    expected = [1.0 if text == "bad" else len(text) for text in texts]
    if not alone:
        expected[5] = np.nan
        (failure,) = result.failures()
        assert failure.sample == 5
        assert f"answered {fault[0]}" in failure.reason
    np.testing.assert_array_equal(result.rewards.ravel(), expected)
    # 16, 8 and 8, 4 and 4, 2 and 2, 1 and 1.
    assert sorted(len(body["completions"]) for body in server.bodies) == [1, 1, 2, 2, 4, 4, 8, 8, 16]


def test_halves_go_before_what_was_not_sent_yet() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return (500, {}) if "b" in body["completions"] else lengths(path, body)

    _, server = posted(answer, list("abcdefghijkl"), batch_size=4, limit=Limit(concurrency=1))
    assert ["".join(body["completions"]) for body in server.bodies] == ["abcd", "ab", "a", "b", "cd", "efgh", "ijkl"]


def test_a_value_that_is_no_number_fails_alone_at_once() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return {"rewards": ["high" if text == "bad" else len(text) for text in body["completions"]]}

    result, server = posted(answer, ["a", "bad", "ccc"], batch_size=8, retries=3)
    np.testing.assert_array_equal(result.rewards.ravel(), [1.0, np.nan, 3.0])
    assert len(server.bodies) == 1
    (failure,) = result.failures()
    assert '"high", which is not a number' in failure.reason


def test_server_failures_do_not_split_gathered_calls() -> None:
    result, server = posted(lambda path, body: (401, {}), ["a"] * 8, batch_size=8, retries=3)
    assert (len(result.failures()), len(server.bodies)) == (8, 1)


def test_a_rate_counts_requests_and_tokens_those_of_all_their_samples() -> None:
    for limit, samples, seconds, requests in (
        # A tenth of a second between two requests; samples one by one would take six.
        (Limit(rpm=600), 64, 0.3, 4),
        # 200 tokens a second
        (Limit(tpm=12_000, tokens=lambda completion: 5, concurrency=1), 32, 16 * 5 / 200, 2),
    ):
        with serving(lengths) as server:
            service = http_reward(server.url, batch_size=16, columns=["completion"], limit=limit)
            with Dispatcher([service]) as dispatcher:
                begun = time.monotonic()
                dispatcher.score(completions=["x"] * samples)
                assert time.monotonic() - begun >= seconds - 0.05
            assert len(server.bodies) == requests
