"""Options that nobody should give: each is refused where the judge is made, with its name, and in a
message of bounded length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, RegistrationError, Server, http_reward, judge, pairwise, parse, rubric
from tests.http.billing import PRICE
from tests.http.scoring import reached
from tests.http.server import chat_completion, question, serving

LONG = "x" * 1_000_000
CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE
ASKED: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}


async def fetched_later() -> str:
    return "sk-123"


MAKERS: dict[str, Callable[..., object]] = {
    "judge": lambda **given: judge(**reached({**ASKED, "prompt": "{completion}", **given})),
    "http_reward": lambda **given: http_reward(**{"url": "http://127.0.0.1:1", **given}),
    "pairwise": lambda **given: pairwise(**{**ASKED, "prompt": "{completion_a}{completion_b}", **given}),
    "rubric": lambda **given: rubric(**{"criteria": {"a": "It is right."}, **ASKED, **given}),
    "parse.rubric": parse.rubric,
}

WRONG: list[tuple[str, str, list[object]]] = [
    ("judge", "base_url", [np.array(0.5), b"http://x", [b"http://x"], [], {}, {"http://x": float("nan")}, LONG]),
    (
        "judge",
        "base_url",
        [["http://x", "HTTP://X"], ["http://x/v1", "http://x:80/v1/"], ["https://x:443", "https://x"]],
    ),
    ("judge", "api_key_file", [7, True, b"key", ["key"], {}]),
    ("judge", "api_key", [7, "sk-123", b"key", fetched_later]),
    ("judge", "ca_file", [7, True, b"ca.pem", ["ca.pem"]]),
    ("judge", "client_cert", [7, b"cert.pem"]),
    ("judge", "body", [7, "x", {"a": b"xy"}, {"a": {1, 2}}, {"a": float("nan")}]),
    ("judge", "timeout", [True, 0, -1, float("nan"), float("inf"), 10**400, "3", LONG]),
    ("judge", "hedge_after", [True, 0, "p0", "p100", float("nan"), LONG]),
    ("judge", "system", [b"x", LONG + "{", "{", "{}"]),
    ("http_reward", "url", [np.array(0.5), None, LONG]),
    ("http_reward", "score", [b"x", "", 7]),
    ("pairwise", "both_orders", [0, 1, None, "yes", np.bool_(True)]),
    ("rubric", "weights", [7, [1.0], "a", {"b": 1}, {"a": float("inf")}, {"a": True}]),
    ("rubric", "scale", [None, 7, "ab", (1,), (1, 1), (2, 1), (0, float("inf")), ("0", "1"), (0, 5, 10)]),
    ("parse.rubric", "criteria", [[["a", 1]], [1, 2], ["a", "a"], "a", LONG]),
]


@pytest.mark.parametrize(
    ("maker", "option", "value"),
    [
        pytest.param(maker, option, value, id=f"{maker}-{option}-{place}")
        for maker, option, values in WRONG
        for place, value in enumerate(values)
    ],
)
def test_a_wrong_option_is_refused_by_name(maker: str, option: str, value: object) -> None:
    with pytest.raises(RegistrationError) as refused:
        MAKERS[maker](**{option: value})
    message = str(refused.value)
    assert option in message or (option == "body" and "encoded as JSON" in message)
    assert len(message) < 5000


REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "judge": [
        ({"prompt": "{}"}, "names no column"),
        ({"prompt": "x"}, "it has no field, so all samples would be asked the same"),
        ({"prompt": '{completion} Answer as {"score": 5}.'}, "looks like JSON, whose braces must be doubled"),
        ({"prompt": "{completion} { 'score': 5 }"}, "write literal braces as {{ and }}"),
        ({"prompt": "{completion"}, "prompt='{completion'"),
        ({"prompt": "{a:{b}}"}, "a field in a field"),
        ({"prompt": "{trainer_state}"}, "can't go into a request"),
        ({"prompt": []}, "a string or a list of messages"),
        ({"base_url": "localhost"}, "is not an address"),
        ({"base_url": "http://bü..de/v1"}, "its host is no name of a host"),
        ({"base_url": "http://me:pw@x"}, "pass a key as api_key_env"),
        ({"api_key_env": "sk-123"}, "names the environment variable"),
        ({"api_key_env": "A", "api_key_file": "B"}, "pass only one of"),
        ({"api_key": "sk-123"}, "expected a function (not an async one) that returns the key. A key that does not"),
        ({"api_key": str, "api_key_file": "B"}, "pass only one of"),
        ({"parse": parse.regex("(?=x)")}, "look-around"),
        ({"parse": "number"}, "a parser of guerdon.parse"),
        ({"max_tokens": 0}, "max_tokens=0: expected a whole number"),
        ({"response_format": "json_schema"}, "parse=parse.json"),
        ({"body": {"stop": {1}}}, "can't be encoded as JSON"),
        ({"headers": {"a b": "c"}}, "is not a valid HTTP header"),
        ({"headers": {"x": "\udce4"}}, "has half a surrogate"),
        ({"ca_file": "/no/such"}, "can't be read"),
        ({"timeout": -1}, "timeout=-1"),
        ({"base_url": "http:///v1"}, "is not an address"),
        ({"base_url": "http:127.0.0.1"}, "is not an address"),
        ({"base_url": "http://x:99999"}, "is not an address"),
        ({"base_url": "http://{host}/v1"}, "Columns go into the request's JSON"),
        ({"base_url": "me:pw@x:99999/v1"}, "a user name or password"),
        ({"base_url": "https://x/v1?api_key=sk-123"}, "'api_key' looks like a key"),
        ({"headers": {"Authorization": "Bearer sk-123"}}, "'Authorization' holds a key"),
        ({"base_url": "https://x/v1?v=1;x-api%2Dkey=sk-123"}, "'x-api-key' looks like a key"),
        ({"headers": {"helicone-auth": "Bearer sk-123"}}, "'helicone-auth' holds a key"),
        ({"headers": {"x-odd": "bearer sk-12345678"}}, "'x-odd' holds a key"),
        ({"body": {"api_key": "sk-123"}}, "'api_key' of the request holds a key, which would be in pickles"),
        ({"body": {"extra": [{"AUTHORIZATION": "sk-123"}]}}, "'AUTHORIZATION' of the request holds a key"),
        ({"body": {"extra_headers": {"X-Odd": "Bearer sk-12345678"}}}, "'X-Odd' of the request holds a key"),
        ({"response_format": {"hf-token": "sk-123"}}, "'hf-token' of the request holds a key"),
        ({"headers": {"x-api-key": "{key}"}}, "none of api_key_env=, api_key_file= and api_key= is given"),
        ({"headers": {"Content-Length": "3"}}, "is set by guerdon"),
        ({"api": []}, "expected one of 'chat', 'completions'"),
        ({"temperature": "0"}, "temperature='0'"),
        ({"body": {"stream": True}}, "pass stream=True instead"),
        ({"body": CIRCLE}, "it contains itself, or is nested too deeply"),
        ({"ca_file": "/dev/zero"}, "not a regular file"),
        ({"api": "chats"}, "expected one of 'chat', 'completions', 'responses', 'anthropic', 'score'"),
        ({"api": "anthropic", "parse": parse.logprob("Yes")}, "has no log-probabilities"),
        ({"api": "anthropic", "response_format": "json_object"}, "takes 'json_schema'"),
        ({"api": "anthropic", "prompt": [{"role": "system", "content": "x"}]}, "pass a system message as system="),
        ({"api": "score"}, "takes two texts"),
        ({"api": "score", "prompt": ("a",)}, "takes two texts"),
        ({"api": "classify", "prompt": []}, "expected a string or a list of messages"),
        ({"api": "classify", "parse": parse.number()}, "parse=parse.json(path) says which"),
        ({"api": "classify", "keep_answers": True}, "answers with numbers, not words"),
        ({"api": "pooling", "system": "x"}, "has no system="),
        ({"api": "pooling", "temperature": 0.5}, "neither temperature= nor stream="),
        ({"base_url": []}, "is empty"),
        ({"base_url": 3}, "expected an address, a list of them"),
        ({"base_url": ["http://a", "http://a"]}, "twice"),
        ({"base_url": {"http://a": 0.0}}, "expected a number above 0"),
        ({"base_url": [("http://a", "much")]}, "expected a number above 0"),
        ({"base_url": ["http://a", "b"]}, "is not an address"),
        ({"resolve": "some"}, "'any' or 'all'"),
        ({"hedge_after": "95"}, "hedge_after"),
        ({"hedge_share": 0}, "hedge_share"),
        ({"hedge_share": 2}, "hedge_share"),
        ({"price": {"input": 1}}, "expected a dict with what a million tokens cost"),
        ({"price": {"input": 1, "output": -1}}, "expected a dict"),
        ({"price": {"input": 1, "output": 1, "inputs": 1}}, "'cached' may be left out"),
        ({"price": 3}, "expected a dict"),
        ({"max_cost": 3}, "max_cost=3 without price="),
        ({"price": PRICE, "max_cost": 0}, "expected a number above 0"),
        ({"price": PRICE, "max_cost": float("inf")}, "expected a number above 0"),
        ({"keep_answers": "yes"}, "keep_answers"),
    ],
    "http_reward": [
        ({"columns": "completion"}, "expected a list of column names"),
        ({"columns": []}, "expected a list of column names"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 10**30}, "from 1 to"),
        ({"batch_size": 1 << 20}, "batch_size=1048576"),
        ({"score": "a..b"}, "not a path to a field"),
        ({"url": "x"}, "is not an address"),
    ],
}


@pytest.mark.parametrize(
    ("maker", "options", "message"),
    [(maker, *row) for maker, rows in REFUSED.items() for row in rows],
)
def test_a_wrong_option_is_refused_in_words(maker: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=f"reward function '{maker}'") as refused:
        MAKERS[maker](**options)
    shown = str(refused.value)
    assert message in shown
    assert "sk-123" not in shown
    assert "pw" not in shown


def test_an_international_host_is_asked_for_by_its_name_in_ascii() -> None:
    made = judge(base_url="http://bücher.example:8000/v1", model="m", prompt="{completion}")
    with Dispatcher([made]) as dispatcher:
        assert dispatcher.endpoints("judge")[0].address == "http://xn--bcher-kva.example:8000/v1"
        dispatcher.endpoints("judge").set(["https://müller.example"])  # the engine takes it too
        assert dispatcher.endpoints("judge")[0].address == "https://xn--mller-kva.example"


def test_a_server_shows_no_key() -> None:
    addresses = ["http://me:secret@a/v1", "http://b/v1?api_key=secret"]
    shown = repr(Server(addresses, headers={"x": "secret"}, api_key_env="secret", hedge_after="p95"))
    assert shown == "Server(['http://…@a/v1', 'http://b/v1?…'], api_key_env=…, headers=…, hedge_after='p95')"
    with pytest.raises(RegistrationError, match=r"server=str\(…\): expected a guerdon.Server") as refused:
        judge(server="secret", model="m", prompt="{completion}")  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


def test_the_form_of_a_rubrics_answer_is_json_whatever_its_criteria_are_called() -> None:
    with serving(lambda path, body: chat_completion(form_of(question(body)))) as server:
        made = rubric({'is "b" \\ {c}': "It is right."}, base_url=server.url, model="m")
        with Dispatcher([made]) as dispatcher:
            result = dispatcher.score(prompts=["a"], completions=["b"])
    assert result.rewards.tolist() == [[[3.0]]]


def form_of(asked: str) -> str:
    """An answer in the form that a rubric shows."""
    return asked.partition("JSON alone: ")[2].replace("<number>", "3")
