"""Options that nobody should give: each is refused where the judge is made, with its name, and in a
message of bounded length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, RegistrationError, Server, http_reward, judge, pairwise, parse, rubric
from tests.http.scoring import reached
from tests.http.server import chat_completion, question, serving

LONG = "x" * 1_000_000
ASKED: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
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


def test_a_server_shows_no_key() -> None:
    addresses = ["http://me:secret@a/v1", "http://b/v1?api_key=secret"]
    shown = repr(Server(addresses, headers={"x": "secret"}, api_key_env="secret", hedge_after="p95"))
    assert shown == "Server(['http://…@a/v1', 'http://b/v1?…'], api_key_env=…, headers=…, hedge_after='p95')"
    with pytest.raises(RegistrationError, match=r"server=str\(…\): expected a guerdon.Server") as refused:
        judge(server="secret", model="m", prompt="{completion}")  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


def test_the_form_of_a_rubrics_answer_is_json_whatever_its_criteria_are_called() -> None:
    with serving(lambda path, body: chat_completion(form_of(question(body)))) as server:
        made = rubric({'is "b" \\ {c}': "It is right."}, base_url=server.url, model="m", repair=False)
        with Dispatcher([made]) as dispatcher:
            result = dispatcher.score(prompts=["a"], completions=["b"])
    assert result.rewards.tolist() == [[[3.0]]]


def form_of(asked: str) -> str:
    """An answer in the form that a rubric shows."""
    return asked.partition("JSON alone: ")[2].replace("<number>", "3")
