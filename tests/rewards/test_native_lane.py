"""Native rewards in a dispatcher: the values of a plain call, and what every lane promises."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Status, reward, rewards
from tests.rewards.texts import PIECES, SLOW

TEXTS = [" ".join(PIECES[first : first + 9]) for first in range(40)]
ANSWERS: list[object] = [PIECES[first + 1] if first % 3 else PIECES[first : first + 3] for first in range(40)]


def test_values_are_those_of_a_plain_call() -> None:
    functions = [
        rewards.squad_f1(),
        rewards.rouge_l(),
        rewards.edit_distance(),
        rewards.repetition_penalty(2, of="words"),
        rewards.think_format(),
        rewards.cosine_length(rewards.squad_f1(), max_len=40),
    ]
    with Dispatcher(functions) as dispatcher:
        result = dispatcher.score(completions=TEXTS, answer=ANSWERS, num_generations=8)
    expected = [function(completions=TEXTS, answer=ANSWERS) for function in functions]
    assert result.rewards.reshape(40, 6).T.tolist() == np.float32(expected).tolist()
    assert not result.failures()


def test_token_ids_reach_kernels() -> None:
    ids = [[1, 2, 3, 1, 2, 3], [70_000] * 9, []]
    with Dispatcher([rewards.repetition_penalty(), rewards.soft_overlong(8, 4)]) as dispatcher:
        result = dispatcher.score(completions=[""] * 3, completion_ids=ids)
    assert result.rewards.reshape(3, 2).tolist() == [[-0.25, -0.5], [np.float32(-6 / 7), -1.0], [0.0, 0.0]]


def test_none_abstains_and_what_is_no_sample_fails() -> None:
    with Dispatcher([rewards.exact_match(), rewards.ifeval()], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(
            completions=["4"] * 4,
            answer=["4", None, ["4"], []],
            instruction_id_list=[["punctuation:no_comma"], None, ["none:such"], ["language:response_language"]],
            kwargs=[[{}], None, [{}], [{"language": "en"}]],
        )
    ok, abstained, error = Status.OK, Status.ABSTAINED, Status.ERROR
    expected = [[ok, ok], [abstained, abstained], [ok, error], [error, abstained]]
    assert result.status.reshape(4, 2).tolist() == expected
    reasons = sorted((failure.sample, failure.reason) for failure in result.failures())
    assert reasons[0][0] == 2
    assert 'no instruction "none:such"' in reasons[0][1]
    assert reasons[1] == (3, "column 'answer': the list of references is empty")


@pytest.mark.fault(
    "a value of a column that a native reward can't take",
    sees="`error` for its sample, with the column; the others are scored",
)
def test_a_wrong_value_fails_its_own_cell() -> None:
    functions = [rewards.exact_match(), rewards.repetition_penalty(1), rewards.json_schema()]
    with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(
            completions=["4"] * 3,
            completion_ids=[[1], [-1], [1]],
            answer=["4", "4", {}],
            schema=[{"type": 1}, True, '{"type": "integer"}'],
        )
    ok, error = Status.OK, Status.ERROR
    assert result.status.reshape(3, 3).tolist() == [[ok, ok, error], [ok, error, ok], [error, ok, ok]]
    reasons = {failure.sample: failure.reason for failure in result.failures()}
    assert reasons[0].startswith("DataError: column 'schema': the schema is wrong")
    assert reasons[1].startswith("column 'completion_ids': OverflowError: ")
    assert reasons[2] == "column 'answer': expected a text, a number or a list of them, not a dict"


class _Text(str):
    __slots__ = ()


def test_texts_of_the_users_own_class_may_come_later() -> None:
    with Dispatcher([rewards.exact_match(), rewards.think_format()]) as dispatcher:
        stream = dispatcher.stream(num_generations=1)
        stream.add(completions=["4"], answer=["4"])
        stream.add(completions=[_Text("4")], answer=[_Text("5")])
        stream.finish()
        rewarded = stream.result(timeout=60).rewards
    assert rewarded.reshape(2, 2).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_gates_open_for_native_rewards() -> None:
    right = rewards.exact_match(name="right")
    partial = rewards.squad_f1(run_if={"right": "< 1"}, otherwise=1.0)
    with Dispatcher([right, partial]) as dispatcher:
        result = dispatcher.score(completions=["a b", "b c"], answer=["a b", "b d"])
    assert result.rewards.reshape(2, 2).tolist() == [[1.0, 1.0], [0.0, 0.5]]
    assert {name: list(samples) for name, samples in result.skipped.items()} == {"squad_f1": [0]}


def running(dispatcher: Dispatcher) -> list[Any]:
    """Calls in flight, as soon as there are any."""
    deadline = time.monotonic() + 60
    while not (calls := list(dispatcher.dump())):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return calls


@pytest.mark.fault(
    "a native reward that takes minutes", sees="`timeout` at its timeout; its thread goes on to other work"
)
@pytest.mark.parametrize("kind", ["edit_distance", "rouge_l", "repetition_penalty"])
def test_a_call_ends_at_its_timeout(kind: str) -> None:
    text, answer = SLOW if kind == "edit_distance" else ("a b " * 1_000_000, "b a " * 1_000_000 + "c")
    slow = {
        "edit_distance": rewards.edit_distance(timeout=0.3),
        "rouge_l": rewards.rouge_l(timeout=0.3),
        "repetition_penalty": rewards.repetition_penalty(100_000, of="words", timeout=0.3),
    }[kind]
    with Dispatcher([slow, rewards.exact_match()], workers=1, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=[text, "4"], answer=[answer, "4"])
        assert result.status.reshape(2, 2).tolist() == [[Status.TIMEOUT, Status.OK], [Status.OK, Status.OK]]
        assert "no answer within the timeout of 0.3 s" in result.failures()[0].reason
        again = dispatcher.score(completions=["4"] * 50, answer=["4"] * 50)
    assert not again.failures()
    assert again.rewards[:, :, 1].tolist() == [[1.0]] * 50


@pytest.mark.fault(
    "a native reward whose keywords take minutes to find", sees="`timeout` at its timeout; closing does not wait for it"
)
def test_a_search_for_keywords_ends_at_its_timeout() -> None:
    keyword = "a" * 50_000 + "b"
    with Dispatcher([rewards.ifeval(loose=True, timeout=0.3)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(
            completions=["a" * 400_000],
            instruction_id_list=[["keywords:existence"]],
            kwargs=[[{"keywords": [keyword]}]],
        )
    assert result.status.ravel().tolist() == [Status.TIMEOUT]


@pytest.mark.fault(
    "a JSON schema whose patterns take minutes on a completion",
    sees="`timeout` at its timeout; closing does not wait for it",
)
def test_a_check_of_many_patterns_ends_at_its_timeout() -> None:
    schema = {"items": {"pattern": r"^(?:(a|a)*\1b|a)"}}
    made = rewards.json_schema(schema=schema, timeout=0.5)
    with Dispatcher([made], workers=1, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=['["a"]', json.dumps(["a" * 17] * 100_000)])
    assert result.status.ravel().tolist() == [Status.OK, Status.TIMEOUT]


def test_a_dump_shows_it_other_threads_run_and_closing_ends_it() -> None:
    """The interpreter's lock is free while kernels run."""
    ran = threading.Event()
    thread = threading.Thread(target=ran.set)
    text, answer = SLOW
    dispatcher = Dispatcher([rewards.edit_distance(timeout=600)], workers=1)
    pending = dispatcher.submit(completions=[text, text], answer=[answer, answer])
    [call] = running(dispatcher)
    assert (call.function, call.lane, call.worker) == ("edit_distance", "native", "native thread")
    assert list(call.samples) == [0]
    assert call.no_stack == "it is no Python"
    thread.start()
    assert ran.wait(30)
    assert not pending.done
    dispatcher.close()
    thread.join()
    assert pending.result(timeout=60).status.ravel().tolist() == [Status.CANCELLED] * 2


def test_a_value_that_had_returned_counts_when_its_batch_is_cancelled() -> None:
    text, answer = SLOW
    with Dispatcher([rewards.edit_distance(timeout=600)], workers=1, max_failure_rate=1.0) as dispatcher:
        # Its cost is known then: one frame has all calls.
        dispatcher.score(completions=["4"] * 64, answer=["4"] * 64)
        texts, answers = ["4"] * 4 + [text], ["4"] * 4 + [answer]
        pending = dispatcher.submit(completions=texts, answer=answers, num_generations=1)
        running(dispatcher)
        pending.cancel()
        assert pending.result(timeout=60).status.ravel().tolist() == [Status.OK] * 4 + [Status.CANCELLED]
        assert dispatcher.score(completions=["4"], answer=["4"]).rewards.item() == 1.0, "the thread is free"


def test_a_trainers_columns_are_native_ones() -> None:
    dispatcher = Dispatcher(
        [rewards.exact_match(), reward(lambda text: float(len(text)), name="length", lane="thread")]
    )
    first, second = dispatcher.reward_funcs
    given = {"prompts": ["q"] * 2, "completions": ["4", "55"], "answer": ["4", "5"]}
    with dispatcher:
        assert first(**given) == [1.0, 0.0]
        assert second(**given) == [1.0, 2.0]
