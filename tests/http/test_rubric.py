"""`guerdon.rubric` against a real server: a column a criterion, from one answer or several."""

from __future__ import annotations

import json
import pickle
import re
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, RegistrationError, RewardBatch, Status, rubric
from tests.clock import eventually
from tests.http.scoring import asked, scored
from tests.http.server import Server, chat_completion, question, serving, silent
from tests.http.test_streaming import Streamer, delta
from tests.http.wire import Wire, wired

CRITERIA = {"correct": "The answer is right.", "clear": "Use no {jargon}."}
NOWHERE: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}


def answer(path: str, body: dict[str, Any]) -> Any:
    """Each criterion gets the length of its name; one that the text is "without" is left out."""
    asked = question(body)
    named = [name for name in CRITERIA if f"{name}: " in asked.split("Rate the answer")[1]]
    given = {
        name: {"reason": f"{name}!", "score": len(name)}
        for name in named
        if f"without {name}" not in asked.split("Rate the answer")[0]
    }
    return chat_completion(f"Well:\n```json\n{json.dumps(given)}\n```")


def made(server: Server | Wire, **options: Any) -> Any:
    return rubric(CRITERIA, model="m", **{"base_url": server.url, "retries": 0, "timeout": 20, **options})


def rated(reply: Any, completions: Sequence[str] = ("a",), **options: Any) -> tuple[RewardBatch, Server]:
    """A batch by a rubric whose server answers so, and the server."""
    columns = {"prompts": ["p"] * len(completions)}
    return asked(reply, completions, make=partial(rubric, CRITERIA), columns=columns, **{"timeout": 20, **options})


def test_structured_output_has_all_criteria() -> None:
    result, server = rated(answer, response_format="json_schema")
    assert result.rewards.ravel().tolist() == [7.0, 5.0]
    schema = server.bodies[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == list(schema["properties"]) == list(CRITERIA)
    for criterion in schema["properties"].values():
        assert criterion["properties"] == {"reason": {"type": "string"}, "score": {"type": "number"}}


@pytest.mark.parametrize(("per_call", "requests"), [("all", 3), ("one", 6)])
def test_each_criterion_is_a_column(per_call: Any, requests: int) -> None:
    with serving(answer) as server, Dispatcher([made(server, per_call=per_call)]) as dispatcher:
        result = dispatcher.score(prompts=["p"] * 3, completions=["a", "b", "c"])
        assert result.functions == dispatcher.names == ("rubric/correct", "rubric/clear")
        assert result.rewards.reshape(3, 2).tolist() == [[7.0, 5.0]] * 3
        assert result.extra["rubric/correct/reason"] == ["correct!"] * 3
        assert result.extra["rubric/clear/reason"] == ["clear!"] * 3
        assert len(server.bodies) == requests
        assert [column.__name__ for column in dispatcher.reward_funcs] == ["rubric/correct", "rubric/clear"]
        columns = [column(prompts=["p"], completions=["a"]) for column in dispatcher.reward_funcs]
        assert columns == [[7.0], [5.0]]
        used = result.usage
        assert sum(used[name]["requests"] for name in used) == requests


def test_a_streamed_answer_has_a_score_for_each_criterion() -> None:
    given = json.dumps({name: {"reason": f"{name}!", "score": len(name)} for name in CRITERIA})
    server = Streamer([delta(given[:20]), delta(given[20:], finish_reason="stop"), b"[DONE]"])
    with wired(server) as wire:
        result = scored(made(wire, stream=True), prompts=["p"])
    assert result.rewards.reshape(2).tolist() == [7.0, 5.0]
    assert result.extra["rubric/clear/reason"] == ["clear!"]


@pytest.mark.parametrize(("per_call", "asked"), [("all", 2), ("one", 4)])
def test_an_answer_that_can_not_be_read_is_repaired(per_call: Any, asked: int) -> None:
    _, server = rated(lambda path, body: chat_completion("Good."), per_call=per_call, retries=1)
    assert len(server.bodies) == asked
    answered, advice = server.bodies[1]["messages"][1:]
    assert answered == {"role": "assistant", "content": "Good."}
    assert "no JSON" in advice["content"]


def test_requests_of_a_sample_begin_with_the_same_text() -> None:
    _, server = rated(answer, ["because"], per_call="one")
    one, other = map(question, server.bodies)
    assert one.startswith("Question:\np\n\nAnswer:\nbecause\n\nRate the answer")
    assert one.split("criterion")[0] == other.split("criterion")[0]
    assert "correct: The answer is right." in one
    assert "clear: Use no {jargon}." in other


@pytest.mark.fault(
    "an answer to a rubric lacks a criterion",
    sees="an `error` of all its criteria; with `per_call='one'` of that criterion alone",
)
def test_a_malformed_answer_fails_all_of_its_criteria() -> None:
    for per_call, expected in (("all", [[7, 5], [np.nan, np.nan]]), ("one", [[7, 5], [7, np.nan]])):
        result, _ = rated(answer, ["fine", "without clear"], per_call=per_call)
        np.testing.assert_array_equal(result.rewards.reshape(2, 2), expected)
        assert all(failure.status == Status.ERROR for failure in result.failures())


@pytest.mark.parametrize("beyond", ['{"correct": 11, "clear": 5}', '{"correct": "high", "clear": 5}', "7 and 5", ""])
def test_other_values_than_scores_are_errors(beyond: str) -> None:
    result, _ = rated(lambda *_: chat_completion(beyond))
    assert (result.status == Status.ERROR).all()


@pytest.mark.fault(
    "a judge repeats the form of a rubric's answer instead of filling it in",
    sees="an `error`: the form holds no scores",
)
def test_the_example_of_the_form_is_no_answer() -> None:
    result, _ = rated(lambda path, body: chat_completion(question(body).split("Reply with JSON alone: ")[1]))
    assert (result.status == Status.ERROR).all()


def test_a_request_that_is_given_up_counts_for_its_criterion() -> None:
    def hanging(path: str, body: dict[str, Any]) -> Any:
        return silent if "clear: " in question(body).split("Rate the answer")[1] else answer(path, body)

    with (
        serving(hanging) as server,
        Dispatcher([made(server, per_call="one", total_timeout=1)], max_failure_rate=1.0) as dispatcher,
    ):
        dispatcher.score(prompts=["p"], completions=["a"])
        eventually(lambda: dispatcher.stats()["usage"]["rubric/clear"]["requests"])
        used = dispatcher.stats()["usage"]
    assert {name: (one["requests"], one["unknown"]) for name, one in used.items()} == {
        "rubric/correct": (1, 0),
        "rubric/clear": (1, 1),
    }


def test_the_requests_of_a_sample_go_to_one_endpoint() -> None:
    with serving(answer) as one, serving(answer) as other:
        with Dispatcher([made(one, base_url=[one.url, other.url], per_call="one", retries=3)]) as dispatcher:
            for number in range(8):
                dispatcher.score(prompts=["p"], completions=[f"sample {number}"])
        at_one = {question(body).split("Rate the answer")[0] for body in one.bodies}
        at_other = {question(body).split("Rate the answer")[0] for body in other.bodies}
        assert len(one.bodies) + len(other.bodies) == 16
    assert not at_one & at_other


def test_weights_are_those_of_the_criteria() -> None:
    with serving(answer) as server:
        entry = made(server, weights={"clear": 1, "correct": 2})
        with Dispatcher([entry]) as dispatcher:
            assert dispatcher.reward_weights == [2.0, 1.0]
            assert dispatcher.score(prompts=["p"], completions=["a"]).total.item() == 19.0
        with Dispatcher([entry], weights=[0.5]) as dispatcher:
            assert dispatcher.reward_weights == [1.0, 0.5]
            again = pickle.loads(pickle.dumps(dispatcher))
            assert again.reward_weights == [1.0, 0.5]
            assert again.score(prompts=["p"], completions=["a"]).total.item() == 9.5
            again.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"criteria": {}}, "expected a dict of 1 to 64 names"),
        ({"criteria": {"a": "two\nlines"}}, "lines of text"),
        ({"per_call": "two"}, "per_call='two'"),
        ({"weights": {"correct": 1}}, "expected a number for each criterion"),
        ({"weights": [1, 2, 3]}, "expected a number for each criterion"),
        ({"scale": 7}, "scale=7: expected the lowest and the highest score"),
        ({"pure": True}, "pure=True is for calls of a single request"),
        ({"votes": 3}, "votes= is for guerdon.judge alone"),
        ({"parse": None}, "a rubric reads the answers that it asks for"),
        ({"prompt": ""}, "prompt=''"),
    ],
)
def test_odd_rubrics_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        rubric(**{**NOWHERE, "criteria": CRITERIA, **options})


def test_a_column_alone_is_refused() -> None:
    with pytest.raises(RegistrationError, match="put the rubric itself into the list"):
        scored(rubric(CRITERIA, **NOWHERE).columns[1], prompts=["p"])


@pytest.mark.parametrize("per_call", ["all", "one"])
def test_groups_of_a_stream_are_delivered_early(per_call: Any) -> None:
    """The first group has all of its columns while the second one's requests hang."""
    let_go = threading.Event()

    def slow(path: str, body: dict[str, Any]) -> Any:
        if "hangs" in question(body):
            let_go.wait(30)
        return answer(path, body)

    with serving(slow) as server, Dispatcher([made(server, per_call=per_call)]) as dispatcher:
        stream = dispatcher.stream(num_generations=2)
        try:
            assert stream.add(prompts=["p"] * 2, completions=["a", "b"]) == [0, 1]
            stream.add(prompts=["q"] * 2, completions=["hangs", "c"])
            groups = stream.groups()
            first = next(groups)
            assert (first.index, first.rewards.tolist()) == (0, [[7.0, 5.0]] * 2)
            assert not let_go.is_set()
            stream.add(prompts=["r"] * 2, completions=["d", "e"])
            stream.finish()
        finally:
            let_go.set()
        assert sorted(group.index for group in groups) == [1, 2]
        result = stream.result()
        assert result.rewards.reshape(6, 2).tolist() == [[7.0, 5.0]] * 6
        assert result.extra["rubric/clear/reason"] == ["clear!"] * 6


@pytest.mark.fault(
    "a judge never answers a rubric about one sample of a group",
    sees="`group_quorum=` or `group_timeout=` delivers the group with all columns of the others",
)
@pytest.mark.parametrize("bound", ["group_quorum", "group_timeout"])
def test_a_group_delivered_without_a_straggler_has_the_others_columns(bound: str) -> None:
    def slow(path: str, body: dict[str, Any]) -> Any:
        return silent if "hangs" in question(body) else answer(path, body)

    options: dict[str, Any] = {"group_quorum": 2} if bound == "group_quorum" else {"group_timeout": 1.0}
    with serving(slow) as server, Dispatcher([made(server)], max_failure_rate=1.0) as dispatcher:
        stream = dispatcher.stream(num_generations=3, **options)
        stream.add(prompts=["p"] * 3, completions=["a", "hangs", "b"])
        stream.finish()
        result = stream.result()
    found = result.rewards.reshape(3, 2)
    assert found[[0, 2]].tolist() == [[7.0, 5.0]] * 2
    assert np.isnan(found[1]).all()
    late = Status.CANCELLED if bound == "group_quorum" else Status.TIMEOUT
    assert result.status.reshape(3, 2)[1].tolist() == [late] * 2
