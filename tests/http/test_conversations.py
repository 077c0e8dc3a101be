"""What a judge gets of conversations: turns, tool calls, images; and what it is told after an
answer that can't be read."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from guerdon import DataError, RegistrationError, judge, parse
from tests.http.published_forms import answered
from tests.http.scoring import asked
from tests.http.server import chat_completion, question

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "sky"}'}}
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}]
ANSWERED = [
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "name": "search", "tool_call_id": "c1", "content": "Rayleigh"},
    {"role": "assistant", "content": [{"type": "text", "text": "Scattering."}]},
]


def bodies(columns: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The requests of one batch."""
    result, server = asked(
        lambda path, body: chat_completion("1"), columns.pop("completions"), columns=columns, **options
    )
    np.testing.assert_array_equal(result.rewards, 1.0)
    return server.bodies


def test_a_judge_sees_every_turn_and_tool_call() -> None:
    columns = {"prompts": [ASKED], "completions": [ANSWERED]}
    (body,) = bodies(columns, prompt="{conversation}\n--\n{completion}\n--\n{text}")
    completion = (
        'assistant: Let me see.\n[tool call] search({"q": "sky"})\n\ntool (search): Rayleigh\n\nassistant: Scattering.'
    )
    conversation = f"system: Be brief.\n\nuser: Why is the sky blue?\n\n{completion}"
    assert question(body) == f"{conversation}\n--\n{completion}\n--\nScattering."


@pytest.mark.fault(
    "a completion is nothing but a tool call",
    sees="the judge gets the call with its arguments, not an empty turn",
)
def test_a_completion_that_is_a_tool_call_is_no_empty_turn() -> None:
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}, {"name": "g", "arguments": {}}]
    completion = [{"role": "assistant", "content": None, "tool_calls": calls}]
    (body,) = bodies({"completions": [completion]}, prompt="{completion}")
    assert question(body) == '[tool call] f({"a": 1})\n[tool call] g({})'
    (body,) = bodies({"prompts": ["Hi"], "completions": ["Ho"]}, prompt="{conversation}")
    assert question(body) == "user: Hi\n\nassistant: Ho"


def test_messages_go_as_they_are_before_the_prompt() -> None:
    columns = {"prompts": [ASKED], "completions": [ANSWERED]}
    (body,) = bodies(columns, prompt="Grade it.", system="You judge.", pass_messages=True)
    assert body["messages"] == [
        {"role": "system", "content": "You judge."},
        *ASKED,
        *ANSWERED,
        {"role": "user", "content": "Grade it."},
    ]
    (body,) = bodies({"prompts": ["Hi"], "completions": ["Ho"]}, prompt="Grade it.", pass_messages=True)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("image", [PNG, URL, {"bytes": PNG, "path": None}, bytearray(PNG)])
def test_images_go_as_data_urls(image: Any) -> None:
    part = {"type": "image_url", "image_url": {"url": URL}}
    columns = {"prompts": ["What is it?"], "completions": ["A dot"], "images": [[image]]}
    (body,) = bodies(columns, prompt="{completion}: right?", images="images")
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "A dot: right?"}, part]
    placed = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
    for prompt, extra in (
        (placed, {"images": [image]}),
        ([{"role": "user", "content": "What is it?"}], {"images": [[image]]}),
        ([{"role": "user", "content": [{"type": "image", "image": image}, placed[0]["content"][1]]}], {}),
    ):
        columns = {"prompts": [prompt], "completions": ["A dot"], **extra}
        named = "images" if extra else None
        (body,) = bodies(columns, prompt="Right?", images=named, pass_messages=True)
        assert body["messages"][0]["content"] == [part, {"type": "text", "text": "What is it?"}]


def test_pillow_images_and_those_of_a_group_are_encoded_once() -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 2))
    saved = []
    save = image.save
    image.save = lambda *given, **named: (saved.append(1), save(*given, **named))
    prompt = [{"role": "user", "content": [{"type": "image", "image": image}]}]
    columns = {"prompts": [prompt] * 8, "completions": ["x"] * 8, "num_generations": 8}
    for body in bodies(columns, prompt="Right?", pass_messages=True):
        assert body["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert saved == [1]


def test_invalid_images_are_refused_with_their_sample() -> None:
    for images, why in (
        ([["x.png"]], "files are not read"),
        ([[b"text"]], "no PNG"),
        ([[7]], "a int is not an image"),
    ):
        with pytest.raises(DataError, match=rf"'images' of sample 0.*{why}"):
            bodies({"completions": ["x"], "images": images}, prompt="{completion}", images="images")
    with pytest.raises(RegistrationError, match="need 'chat', 'responses' or 'anthropic'"):
        judge(base_url="http://x/v1", model="m", prompt="{completion}", api="completions", images="images")


@pytest.mark.fault(
    "a judge's answer can't be read, and at temperature 0 it would say the same again",
    sees="the next attempt has the answer and what was wrong with it; its tokens count",
)
@pytest.mark.parametrize("api", ["chat", "anthropic", "responses"])
def test_a_judge_hears_what_was_wrong_with_its_answer(api: Any) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        messages = body.get("messages") or body["input"]
        reply = answered(api, "7... or 8" if len(messages) == 1 else "<s>8</s>" if len(messages) == 3 else "?")
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return {**reply, "usage": usage} if api == "chat" else reply

    way = parse.tag("s", range=(0, 10))
    result, server = asked(answer, prompt="Rate {completion}", parse=way, api=api, retries=1)
    assert result.rewards.item() == 8.0
    first, second = (body.get("messages") or body["input"] for body in server.bodies)
    assert second[:1] == first
    assert second[1] == {"role": "assistant", "content": "7... or 8"}
    assert second[2]["role"] == "user"
    assert second[2]["content"] == (
        "Your answer could not be read: no <s>…</s>. Answer again, and give nothing but <s>…</s>, once, with the score in "
        "it, which is a number from 0 to 10."
    )
    if api == "chat":
        used = result.usage["judge"]
        assert (used["requests"], used["prompt_tokens"], used["completion_tokens"]) == (2, 10, 4)


@pytest.mark.filterwarnings(r"ignore:judge\(repair=\) is deprecated")
@pytest.mark.parametrize(
    "options", [{"parse": parse.number().without_repair()}, {"repair": False}, {"api": "completions"}]
)
def test_without_repair_the_same_is_asked_again(options: dict[str, Any]) -> None:
    reply = {"choices": [{"message": {"content": "?"}, "text": "?"}]}
    result, server = asked(lambda path, body: reply, retries=1, **options)
    assert np.isnan(result.rewards).all()
    assert len(server.bodies) == 2
    assert json.dumps(server.bodies[0]) == json.dumps(server.bodies[1])
