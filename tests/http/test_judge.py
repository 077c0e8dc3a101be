"""`guerdon.judge`: from the columns of a batch to scores."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import guerdon
from guerdon import DataError, Dispatcher, RegistrationError, Status, judge, parse, reward
from tests.clock import eventually
from tests.http.scoring import asked, judging, only
from tests.http.server import chat_completion, length, question, serving

SECRET = "sk-very-secret"
NOWHERE = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}


def test_each_sample_is_asked_about_in_its_own_words() -> None:
    texts = ["", "plain", 'quotes " and \\ and \n', "Grüße", "漢字", "🙂" * 3, "NUL \0", "x" * 100_000]
    result, server = asked(length, texts, base="/v1/", parse=parse.number(range=(0, 1e6)))
    np.testing.assert_array_equal(result.rewards.ravel(), [len(text) for text in texts])
    assert sorted(map(question, server.bodies)) == sorted(texts)
    assert server.bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": question(server.bodies[0])}],
        "temperature": 0.0,
    }


def test_columns_of_any_kind_stand_in_the_prompt() -> None:
    talk = [{"role": "user", "content": "Why?"}]
    answer = [{"role": "assistant", "content": [{"type": "text", "text": "Because"}]}]
    prompt = [
        {"role": "system", "content": "Be {{just}}."},
        {"role": "user", "content": "{prompt}|{completion}|{text}|{size:.1f}|{tags[0]}|{{}}|{name!r}|{some}"},
    ]
    columns = {"size": np.array([2.25, 3.0]), "tags": [["a"], ["b"]], "name": ["x", "y"], "some": [None, 1]}
    _, server = asked(length, [answer, answer], prompt=prompt, columns={"prompts": [talk, talk * 2], **columns})
    assert sorted(map(question, server.bodies)) == [
        "Why?|Because|Because|2.2|a|{}|'x'|None",
        "user: Why?\n\nuser: Why?|Because|Because|3.0|b|{}|'y'|1",
    ]
    assert server.bodies[0]["messages"][0] == {"role": "system", "content": "Be {just}."}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_log_probabilities_are_soft_scores(api: Any) -> None:
    result, server = asked(
        lambda path, body: likely(path, "Yes", {"Yes": 0.6, " No": 0.2}),
        parse=parse.logprob("Yes", "No", top=5),
        api=api,
    )
    assert result.rewards.item() == pytest.approx(0.75)
    logprobs = {"logprobs": 5} if api == "completions" else {"logprobs": True, "top_logprobs": 5}
    assert server.bodies[0].items() >= {"max_tokens": 1, **logprobs}.items()


def likely(path: str, text: str, shares: dict[str, float]) -> Any:
    """An answer with the probabilities of its first token."""
    logprobs = {token: float(np.log(share)) for token, share in shares.items()}
    if path == "/completions":
        return {"choices": [{"text": text, "logprobs": {"top_logprobs": [logprobs]}}]}
    top = [{"token": token, "logprob": logprob} for token, logprob in logprobs.items()]
    return {"choices": [{"message": {"content": text}, "logprobs": {"content": [{"top_logprobs": top}]}}]}


def test_the_expectation_of_digits_is_a_score() -> None:
    way = parse.logprob("1", "2", "3", "4", "5", expected=True)
    result, _ = asked(lambda path, body: likely(path, "4", {"4": 0.6, "5": 0.3, "3": 0.1}), parse=way)
    assert result.rewards.item() == pytest.approx(4.2)


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.fault(
    "a judge's server lists too few of the likely tokens for `parse.logprob`",
    sees="`error` that says between what the score lies, unless what is missing changes it by no more than 0.01",
)
def test_a_token_that_is_not_listed_is_no_zero_unless_it_must_be_one(api: Any) -> None:
    listed = {
        "sure": {"No": 0.97, "Hm": 0.02, "So": 0.006, "Er": 0.001},
        "unsure": {"No": 0.5, "Hm": 0.2, "So": 0.1, "Er": 0.05},
        "alone": {"Yes": 0.6},
        "neither": {"Hm": 0.9, "So": 0.05, "Er": 0.001},
    }

    def weighed(path: str, body: dict[str, Any]) -> Any:
        return likely(path, "?", listed[body["prompt"] if path == "/completions" else question(body)])

    result, _ = asked(weighed, list(listed), parse=parse.logprob("Yes", "No"), api=api)
    assert result.rewards.ravel().tolist()[0] == 0.0
    assert np.isnan(result.rewards.ravel()[1:]).all()
    unsure, alone, neither = (failure.reason for failure in result.failures())
    assert 'no probability of "Yes" among the most likely first tokens' in unsure
    assert "the score may be 0.00 to 0.17 (parse.logprob(top=)" in unsure
    assert "the score may be 0.60 to 1.00" in alone
    assert 'no probability of "Yes" and "No" among' in neither


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.fault(
    "a judge's answer is cut (`max_tokens`) within its score, or where that may be",
    sees="`error` that says so: 1 may be the beginning of 10",
)
def test_a_score_that_may_have_gone_on_is_none(api: Any) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        text, end, *tokens = (question(body) if path != "/completions" else body["prompt"]).split("|")
        usage = {"completion_tokens": int(tokens[0])} if tokens else {}
        choice = {"text": text} if path == "/completions" else {"message": {"content": text}}
        return {"choices": [{**choice, "finish_reason": end}], "usage": usage}

    texts = ["Score: 1|stop", "Score: 1|length", "Score: 1|length|3", "7|length|1", "7 out of 10.\nBeca|length"]
    result, _ = asked(answer, texts, parse=parse.number(which="first", reasoning="keep"), api=api)
    np.testing.assert_array_equal(result.rewards.ravel(), [1, np.nan, np.nan, 7, 7])
    reason = result.failures()[0].reason
    assert "returned a score that may be cut off (max_tokens was reached, or a filter ended the answer)" in reason
    assert 'ended the answer) in the answer "Score: 1"' in reason


def test_completions_and_structured_output() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/completions":
            return {"choices": [{"text": f" {len(body['prompt'])}"}]}
        assert body["response_format"]["json_schema"]["schema"]["properties"] == {"score": {"type": "number"}}
        assert (body["max_tokens"], body["seed"], "temperature" in body) == (9, 1, False)
        return chat_completion('{"score": 4}')

    schema = {"parse": parse.json("score"), "response_format": "json_schema", "max_tokens": 9, "body": {"seed": 1}}
    for options, score in (({"api": "completions"}, 3.0), ({**schema, "temperature": None}, 4.0)):
        result, _ = asked(answer, ["abc"], base="/v1", **options)
        assert result.rewards.item() == score


def test_structured_output_is_asked_for_as_it_is_given() -> None:
    own = {"type": "json_schema", "json_schema": {"name": "mine", "schema": {"type": "object"}}}
    whole: dict[str, Any] = {"type": "number"}
    for name in ("score", "verdict"):
        whole = {"type": "object", "properties": {name: whole}, "required": [name], "additionalProperties": False}
    made = {"type": "json_schema", "json_schema": {"name": "judgment", "strict": True, "schema": whole}}
    for given, sent in (("json_object", {"type": "json_object"}), ("json_schema", made), (own, own)):
        result, server = asked(
            lambda path, body: chat_completion('{"verdict": {"score": 4}}'),
            parse=parse.json("verdict.score"),
            response_format=given,
        )
        assert result.rewards.item() == 4.0
        assert server.bodies[0]["response_format"] == sent


def test_unparsable_answer_is_an_error_that_shows_it() -> None:
    result, server = asked(lambda path, body: chat_completion("I would rather not say"), retries=1)
    failure = only(result)
    assert failure.status is Status.ERROR
    assert failure.reason.endswith('returned no number in the answer "I would rather not say"')
    assert (failure.attempts, len(server.bodies)) == (2, 2)


def test_keys_come_from_outside_and_show_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET + "\n")
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    looked = threading.Event()

    def refused(path: str, body: dict[str, Any]) -> Any:
        looked.wait(60)
        return 401, {"error": f"wrong key {SECRET}"}

    with serving(refused) as server:
        judges = [
            judging(server.url, api_key_env="JUDGE_API_KEY", name="env"),
            judging(server.url, api_key_file=str(file), headers={"api-key": "{key}"}, name="file"),
        ]
        shown = repr(judges) + pickle.dumps(judges).decode("latin-1")
        with Dispatcher(judges) as dispatcher:
            pending = dispatcher.submit(completions=["x"])
            eventually(lambda: "(http)" in str(dispatcher.dump()))
            shown += str(dispatcher.dump())
            looked.set()
            shown += pickle.dumps(dispatcher).decode("latin-1")
            shown += "".join(map(str, pending.result().failures()))
    assert SECRET not in shown
    assert "wrong key …" in shown
    assert f"'127.0.0.1:{server.server_address[1]}'" in shown
    sent = {(headers.get("authorization"), headers.get("api-key")) for headers in map(_lower, server.headers)}
    assert sent == {(f"Bearer {SECRET}", None), (None, SECRET)}


def _lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_pickled_it_is_made_again() -> None:
    one = judge(**NOWHERE, prompt="{answer}", parse=parse.regex("a|b", {"a": 1}), name="mine", timeout=5, retries=1)
    other = pickle.loads(pickle.dumps(one))
    assert (other.name, other.spec.http, other.spec.policy) == (one.name, one.spec.http, one.spec.policy)
    assert repr(pickle.loads(pickle.dumps(Dispatcher([one])))) == repr(Dispatcher([one]))


def test_addresses_of_an_iterator_are_read_once() -> None:
    addresses = ["http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"]
    for given in ({"base_url": iter(addresses)}, {"server": guerdon.Server(iter(addresses))}):
        made = judge(**given, model="m", prompt="{completion}")
        for one in (made, pickle.loads(pickle.dumps(made))):
            assert [url for url, _ in one.spec.http.fleet.endpoints] == [f"{url}/chat/completions" for url in addresses]


def test_values_that_only_resemble_a_key_are_sent() -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string"}, "token": {"type": "string"}}}
    body = {"prompt_cache_key": "k", "eos_token": "</s>", "guided_json": schema, "max_tokens": 3, "api_key": None}
    body |= {"metadata": {"topic": "Basic arithmetic"}, "stop": ["Bearer certificates"]}
    options: dict[str, Any] = {"headers": {"x-cache-key": "k"}, "prompt": "Bearer abcdefghij {completion}"}
    result, server = asked(lambda path, body: chat_completion("1"), body=body, **options)
    assert result.rewards.item() == 1.0
    assert {name: server.bodies[0][name] for name in body} == body


def test_a_query_of_the_address_stands_behind_the_path_and_is_not_shown() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return chat_completion("1" if path == "/v1/chat/completions?version=7" else "0")

    result, _ = asked(answer, base="/v1/?version=7")
    assert result.rewards.item() == 1.0
    assert "/v1/chat/completions?…," in repr(judging("http://127.0.0.1:9/v1/?version=7"))
    with pytest.raises(RegistrationError, match="/v1#…' is not an address") as refused:
        judging("http://127.0.0.1:9/v1#sk-123")
    assert "sk-123" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"api_key_file": "/dev/zero"}, "api_key_file='/dev/zero' can't be read: it is not a regular file"),
        ({"api_key_file": "/no/such\0file"}, "its name holds a NUL"),
        ({"api_key_file": "gsk_123"}, "not shown: it may be a key"),
        ({"api_key_env": "gsk_123"}, "not shown: it may be a key"),
    ],
)
def test_places_of_keys_that_are_none(given: dict[str, str], message: str) -> None:
    with pytest.raises(RegistrationError, match="judge") as refused:
        Dispatcher([judging("http://127.0.0.1:9/v1", **given)])
    assert message in str(refused.value)
    assert "gsk_123" not in str(refused.value)


def test_a_key_file_may_begin_with_a_mark_of_its_encoding(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xef\xbb\xbf" + SECRET.encode() + b"\r\n")
    result, server = asked(lambda path, body: chat_completion("1"), api_key_file=str(file))
    assert result.rewards.item() == 1.0
    assert _lower(server.headers[0])["authorization"] == f"Bearer {SECRET}"


def test_missing_columns_are_refused_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(RegistrationError, match="has no NO_SUCH_KEY"):
        Dispatcher([judge(**NOWHERE, prompt="{completion}", api_key_env="NO_SUCH_KEY")])
    with Dispatcher([judge(**NOWHERE, prompt="{anwser} {size:d}")]) as dispatcher:
        with pytest.raises(
            DataError, match=r"Its columns: size. Add it to the dataset, or have the request name another"
        ):
            dispatcher.score(completions=["x"], size=[1])
        with pytest.raises(DataError, match=r"'anwser', which this batch doesn't have.*Did you mean 'answer'"):
            dispatcher.score(completions=["x"], answer=["y"], size=[1])
        with pytest.raises(
            DataError, match=r"'size' of sample 1 can't go into a request of 'judge' as \{size:d\}: ValueError"
        ):
            dispatcher.score(completions=["x", "z"], anwser=["y", "y"], size=[1, "big"])
    with pytest.raises(RegistrationError, match=r"Make a judge with guerdon\.judge"):
        reward(lambda completion: 1.0, name="f", lane="http")
    with pytest.raises(TypeError, match="only a dispatcher can run it"):
        judge(**NOWHERE, prompt="{completion}")(completions=["x"])
