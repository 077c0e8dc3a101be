"""The sample's messages and images by Anthropic's and OpenAI's other API: what their servers would
refuse is refused here too."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import DataError, RegistrationError, judge, pairwise
from tests.http.published_forms import CHECKS, answered
from tests.http.scoring import asked
from tests.http.test_conversations import ANSWERED, ASKED, PNG, URL

TALK = {"prompts": [ASKED], "completions": [ANSWERED]}
DATA = URL.split(",")[1]
RESULT = {"role": "tool", "content": "4"}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def bodies(api: str, columns: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The requests of one batch to a server that takes what its API does."""

    def strict(path: str, body: dict[str, Any]) -> Any:
        try:
            CHECKS[api](body)
        except (AssertionError, KeyError) as error:
            return 400, {"error": f"{type(error).__name__}: {error} in {json.dumps(body)}"}
        return answered(api, "1")

    others = {name: values for name, values in columns.items() if name != "completions"}
    options = {"api": api, "prompt": "Grade it.", **options}
    result, server = asked(strict, columns["completions"], columns=others, **options)
    assert [failure.reason for failure in result.failures()] == []
    np.testing.assert_array_equal(result.rewards, 1.0)
    return server.bodies


def test_anthropic_gets_system_messages_apart_and_tools_as_blocks() -> None:
    (body,) = bodies("anthropic", TALK, system="You judge.", pass_messages=True)
    assert body["system"] == [{"type": "text", "text": "You judge."}, {"type": "text", "text": "Be brief."}]
    used = {"type": "tool_use", "id": "completion_1", "name": "search", "input": {"q": "sky"}}
    content = [{"type": "text", "text": "Rayleigh"}]
    result = {"type": "tool_result", "tool_use_id": "completion_1", "content": content}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Why is the sky blue?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, used]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "Scattering."}]},
        {"role": "user", "content": "Grade it."},
    ]
    assert body["tools"] == [{"name": "search", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_responses_get_their_items() -> None:
    (body,) = bodies("responses", TALK, system="You judge.", pass_messages=True)
    assert body["instructions"] == "You judge."
    assert body["input"] == [
        {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Why is the sky blue?"}]},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "completion_1", "name": "search", "arguments": '{"q": "sky"}'},
        {"type": "function_call_output", "call_id": "completion_1", "output": "Rayleigh"},
        {"role": "assistant", "content": "Scattering."},
        {"role": "user", "content": "Grade it."},
    ]


@pytest.mark.parametrize("api", ["anthropic", "responses"])
def test_without_system_messages_and_tools_there_are_none(api: str) -> None:
    columns = {"prompts": ["Hi"], "completions": ["Ho"]}
    for pass_messages in (True, False):
        (body,) = bodies(api, columns, prompt="Grade {completion}.", pass_messages=pass_messages)
        assert not body.keys() & {"system", "instructions", "tools", "tool_choice"}


@pytest.mark.fault(
    "a conversation ends in a tool call, or has a result of no call, which two APIs refuse",
    sees="the judge gets the call or the result as text",
)
@pytest.mark.parametrize("api", ["anthropic", "responses"])
def test_calls_and_results_without_the_other_go_as_text(api: str) -> None:
    completion = [
        RESULT,
        {"role": "assistant", "content": None, "tool_calls": [call("add", a=2), call("a.b", c=1)]},
        {**RESULT, "name": "a.b"},
        {"role": "tool", "tool_call_id": "who", "content": "lost"},
        {"role": "assistant", "content": "", "tool_calls": [call("add", a=3)]},
    ]
    columns = {"prompts": [[{"role": "user", "content": ""}]], "completions": [completion]}
    (body,) = bodies(api, columns, pass_messages=True)
    shown = json.dumps(body)
    for text in ("(no text)", "tool: 4", "[tool call] add", '"a_b"', "tool: lost", json.dumps('({"a": 3})')[1:-1]):
        assert text in shown, text
    assert shown.count("completion_2") == 2


@pytest.mark.parametrize("image", [PNG, URL, "https://example.org/x.png"])
def test_images_are_parts_of_each_api(image: Any) -> None:
    inline = {"type": "base64", "media_type": "image/png", "data": DATA}
    remote = isinstance(image, str) and image.startswith("http")
    url = image if remote else URL
    source = {"type": "url", "url": url} if remote else inline
    parts = {
        "anthropic": [{"type": "text", "text": "x: right?"}, {"type": "image", "source": source}],
        "responses": [
            {"type": "input_text", "text": "x: right?"},
            {"type": "input_image", "image_url": url, "detail": "auto"},
        ],
    }
    for api, expected in parts.items():
        columns = {"prompts": ["What?"], "completions": ["x"], "images": [[image]]}
        (body,) = bodies(api, columns, prompt="{completion}: right?", images="images")
        assert (body.get("messages") or body["input"])[-1]["content"] == expected
        (body,) = bodies(api, columns, images="images", pass_messages=True)
        first = (body.get("messages") or body["input"])[0]["content"]
        assert first == [expected[1], {**expected[0], "text": "What?"}]
        shown = [{"role": "tool", "content": [{"type": "image", "image": image}]}]
        completion = [{"role": "assistant", "content": "", "tool_calls": [call("see")]}, *shown]
        (body,) = bodies(api, {"prompts": ["p"], "completions": [completion]}, pass_messages=True)
        assert url in json.dumps(body) or DATA in json.dumps(body)


@pytest.mark.parametrize("api", ["anthropic", "responses"])
def test_long_conversations_are_written_while_they_are_sent(api: str) -> None:
    for prompt, completion in (
        (ASKED, "word " * 20_000),
        ("Why?", [*ANSWERED, {"role": "user", "content": "x" * 99_999}]),
    ):
        (body,) = bodies(api, {"prompts": [prompt], "completions": [completion]}, pass_messages=True)
        assert len(json.dumps(body)) > 90_000


@pytest.mark.parametrize("api", ["anthropic", "responses"])
def test_content_an_api_has_no_place_for_is_refused(api: str) -> None:
    spoken = [{"role": "assistant", "content": [{"type": "image", "image": PNG}]}]
    sound = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]
    for columns, why in (
        ({"prompts": ["p"], "completions": [spoken]}, "takes no images in an assistant's message"),
        ({"prompts": [sound], "completions": ["c"]}, "no place for a part of type 'input_audio'"),
    ):
        with pytest.raises(DataError, match=why):
            bodies(api, columns, pass_messages=True)
    if api == "anthropic":
        with pytest.raises(DataError, match="takes PNG, JPEG, GIF and WebP images in base64, not a URL of 'image/bmp;"):
            bodies(api, {"completions": ["c"], "image": [b"BM1234"]}, prompt="{completion}", images="image")
    with pytest.raises(RegistrationError, match="expected one column"):
        judge(base_url="http://x", model="m", prompt="x", api=api, images=["a", "b"], pass_messages=True)  # type: ignore[arg-type]


_TEXTS = st.sampled_from(["", " ", "Hi.", 'é\n"{}"'])
_CALLS = st.lists(
    st.builds(lambda name, id: {**call(name, a=1), **({"id": id} if id else {})}, st.sampled_from(["f", "g.h"]), st.sampled_from([None, "c1", "x:1"])),
    max_size=3,
)  # fmt: skip
_MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, _TEXTS),
        st.builds(lambda text: {"role": "system", "content": text}, _TEXTS),
        st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, _TEXTS, _CALLS),
        st.builds(
            lambda text, id: {"role": "tool", "content": text, **({"tool_call_id": id} if id else {})},
            _TEXTS,
            st.sampled_from([None, "c1", "x:1", "lost"]),
        ),
    ),
    max_size=6,
)  # fmt: skip


@pytest.mark.parametrize("api", ["anthropic", "responses"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations=st.lists(st.tuples(_MESSAGES, _MESSAGES), min_size=4, max_size=4))
def test_any_conversation_becomes_a_valid_request(api: str, conversations: list[Any]) -> None:
    begin = [{"role": "user", "content": "p"}]
    prompts = [begin + prompt for prompt, _ in conversations]
    completions = [completion or "none" for _, completion in conversations]
    bodies(api, {"prompts": prompts, "completions": completions}, pass_messages=True)


def test_comparisons_show_images_that_samples_share_and_their_own() -> None:
    def strict(path: str, body: dict[str, Any]) -> Any:
        content = body["messages"][-1]["content"]
        one, other = content[0]["text"].split(" or ")
        shown = [part["image_url"]["url"][-1] for part in content[1:]]
        if shown != ["0", one, other]:
            return 400, {"error": f"{shown} for {one}, {other}"}
        return answered("chat", "[[A]]" if one > other else "[[B]]")

    names = "1234"
    columns = {"asked": ["http://x/0"] * 4, "picture": [[f"http://x/{name}"] for name in names], "num_generations": 4}
    options: Any = {"prompt": "{completion_a} or {completion_b}", "images": ["asked", "picture_a", "picture_b"]}
    result, _ = asked(strict, names, make=pairwise, columns=columns, **options)
    assert result.failures() == []
    assert np.argmax(result.rewards) == 3
    with pytest.raises(RegistrationError, match="pass_messages= sends one sample's messages"):
        pairwise(base_url="http://x", model="m", prompt="{completion_a}{completion_b}", pass_messages=True)
