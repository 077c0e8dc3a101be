"""The APIs that `guerdon.judge` asks by: what each request holds, and how each answer is read."""

from __future__ import annotations

from typing import Any

import pytest

from guerdon import Status, judge, parse
from tests.http import scoring
from tests.http.scoring import only
from tests.http.server import chat_completion

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


def message(text: str, **more: Any) -> dict[str, Any]:
    """An answer of Anthropic's messages."""
    return {
        "type": "message",
        "content": [{"type": "thinking", "thinking": "9?"}, {"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 3},
        **more,
    }


def response(text: str, **more: Any) -> dict[str, Any]:
    """An answer of OpenAI's responses."""
    part = {"type": "output_text", "text": text, "logprobs": [{"top_logprobs": [{"token": "Yes", "logprob": 0.0}]}]}
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "9?"}]}
    return {"status": "completed", "output": [reasoning, {"type": "message", "content": [part]}], **more}


def asked(answer: Any, base: str = "/v1", **options: Any) -> tuple[Any, Any, str, dict[str, str]]:
    """The result of one judge, and the body, path and headers of its last request."""
    paths: list[str] = []

    def reply(path: str, body: dict[str, Any]) -> Any:
        paths.append(path)
        return answer

    result, server = scoring.asked(reply, ["Because"], base=base, columns={"prompts": ["Why?"]}, **options)
    sent = {name.lower(): value for name, value in server.headers[-1].items()}
    return result, server.bodies[-1], paths[-1], sent


# Answers in OpenAI's form with more fields than OpenAI's, and the usage that they state.
# Each row has fields of the answer, the choice, the message and the usage, and the counted usage.
PROVIDERS: dict[str, tuple[dict[str, Any], ...]] = {
    # https://ai.google.dev/gemini-api/docs/openai: the total has the tokens of its thoughts
    "gemini": (
        {"created": 1764374400, "id": "aBcD", "model": "gemini-2.5-flash", "object": "chat.completion"},
        {},
        {},
        {"total_tokens": 90},
        {"prompt_tokens": 20.0, "completion_tokens": 70.0},
    ),
    # https://learn.microsoft.com/azure/ai-foundry/openai/reference
    "azure": (
        {"model": "gpt-4.1-mini", "prompt_filter_results": [{"content_filter_results": {}, "prompt_index": 0}]},
        {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}, "logprobs": None},
        {"annotations": [], "refusal": None},
        {
            "completion_tokens_details": {"audio_tokens": 0, "reasoning_tokens": 0},
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        {"prompt_tokens": 20.0, "completion_tokens": 3.0},
    ),
    # https://docs.litellm.ai/docs/providers/bedrock: a model of Anthropic's behind its proxy
    "litellm": (
        {"model": "claude-sonnet-4", "service_tier": None, "system_fingerprint": None},
        {},
        {"function_call": None, "provider_specific_fields": None, "tool_calls": None},
        {
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "completion_tokens_details": None,
            "prompt_tokens_details": {"cached_tokens": 5, "text_tokens": None},
        },
        {"prompt_tokens": 20.0, "cached_tokens": 5.0, "completion_tokens": 3.0},
    ),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_answers_of_providers_with_openais_form(provider: str) -> None:
    more, choice, message, usage, counted = PROVIDERS[provider]
    answer = {
        "choices": [
            {
                "finish_reason": "stop",
                "index": 0,
                "message": {"content": "Score: 8", "role": "assistant", **message},
                **choice,
            }
        ],
        "usage": {"completion_tokens": 3, "prompt_tokens": 20, "total_tokens": 23, **usage},
        **more,
    }
    result, *_ = asked(answer, prompt="Rate {completion}")
    assert result.rewards.item() == 8.0
    assert result.usage["judge"].items() >= counted.items()


def test_openai_responses() -> None:
    result, body, path, _ = asked(
        response("Score: 7"),
        api="responses",
        prompt="Rate {completion}",
        system="Be just.",
        max_tokens=50,
        response_format="json_object",
        parse=parse.number(),
    )
    assert result.rewards.item() == 7.0
    assert path == "/v1/responses"
    assert body == {
        "model": "m",
        "instructions": "Be just.",
        "input": [{"role": "user", "content": "Rate Because"}],
        "store": False,
        "max_output_tokens": 50,
        "temperature": 0.0,
        "text": {"format": {"type": "json_object"}},
    }


def test_openai_responses_with_a_schema_and_with_log_probabilities() -> None:
    answer = response('{"score": 2}')
    result, body, *_ = asked(
        answer, api="responses", prompt="{completion}", parse=parse.json("score"), response_format="json_schema"
    )
    assert result.rewards.item() == 2.0
    form = body["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "judgment", True)
    assert form["schema"]["required"] == ["score"]
    result, body, *_ = asked(response("Yes"), api="responses", prompt="{completion}", parse=parse.logprob("Yes", top=5))
    assert result.rewards.item() == 1.0
    assert body["include"] == ["message.output_text.logprobs"]
    assert (body["top_logprobs"], body["max_output_tokens"]) == (5, 16)


def test_a_response_that_was_cut_or_failed() -> None:
    cut = response("Score: 1", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    failed = {"status": "failed", "error": {"code": "server_error", "message": "later"}, "output": []}
    for answer, reason in ((cut, "may be cut off"), (failed, "server_error")):
        result, *_ = asked(answer, api="responses", prompt="{completion}")
        assert only(result).status is Status.ERROR
        assert reason in only(result).reason


def test_anthropics_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    options: dict[str, Any] = {"api": "anthropic", "prompt": "Rate {completion}", "system": "Be just."}
    result, body, path, sent = asked(message("Score: 7"), base="", api_key_env="ANTHROPIC_API_KEY", **options)
    assert result.rewards.item() == 7.0
    assert path == "/v1/messages"
    assert body == {
        "model": "m",
        "system": "Be just.",
        "messages": [{"role": "user", "content": "Rate Because"}],
        "max_tokens": 1024,
        "temperature": 0.0,
    }
    assert (sent["x-api-key"], sent["anthropic-version"]) == ("sk-ant-secret", "2023-06-01")
    assert "authorization" not in sent
    # A gateway with a token of its own, and an address that says /v1 already.
    _, body, path, sent = asked(
        message("1"),
        api_key_env="ANTHROPIC_API_KEY",
        headers={"Authorization": "Bearer {key}", "Anthropic-Version": "2099-01-01"},
        max_tokens=5,
        response_format="json_schema",
        **{**options, "parse": parse.json("score"), "temperature": None},
    )
    assert (sent["authorization"], sent["anthropic-version"]) == ("Bearer sk-ant-secret", "2099-01-01")
    assert "x-api-key" not in sent
    assert (path, body["max_tokens"], "temperature" in body) == ("/v1/messages", 5, False)
    assert body["output_config"]["format"]["schema"]["required"] == ["score"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (message("1", stop_reason="max_tokens"), "may be cut off"),
        (message("I can't", stop_reason="refusal"), 'the judge refused: "I can\'t"'),
        ({"type": "error", "error": {"type": "api_error"}}, "answered 500 Internal Server Error"),
    ],
)
def test_messages_without_a_score(answer: Any, reason: str) -> None:
    result, *_ = asked(answer, api="anthropic", prompt="{completion}")
    assert reason in only(result).reason


@pytest.mark.parametrize(
    ("api", "prompt", "request_", "answer"),
    [
        (
            "score",
            ("{prompt}", "{completion}"),
            {"text_1": "Why?", "text_2": "Because"},
            {"data": [{"index": 0, "object": "score", "score": 0.5}], "usage": USAGE},
        ),
        (
            "score",
            {"query": "{prompt}", "items": ["{completion}"], "label_token_ids": [1], "apply_softmax": True},
            {"query": "Why?", "items": ["Because"], "label_token_ids": [1], "apply_softmax": True},
            {"scores": [[0.5]], "object": "scoring", "usage": None},
        ),
        (
            "classify",
            "{prompt} {completion}",
            {"input": "Why? Because"},
            {"data": [{"index": 0, "label": "LABEL_0", "probs": [0.5], "num_classes": 1}]},
        ),
        (
            "classify",
            {"text": "{completion}"},
            {"text": "Because"},
            [{"embedding": [0.5], "meta_info": {"prompt_tokens": 3}}],
        ),
        (
            "pooling",
            [{"role": "user", "content": "{prompt}"}, {"role": "assistant", "content": "{completion}"}],
            {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because"}]},
            {"data": [{"index": 0, "object": "pooling", "data": [[0.5]]}]},
        ),
    ],
)
def test_reward_models(api: Any, prompt: Any, request_: dict[str, Any], answer: Any) -> None:
    result, body, path, _ = asked(answer, base="", api=api, prompt=prompt, body={"use_activation": False})
    assert result.rewards.item() == 0.5
    assert path == f"/{api}"
    assert body == {"model": "m", **request_, "use_activation": False}


def test_a_reward_model_with_several_numbers() -> None:
    answer = {"data": [{"probs": [0.25, 0.75], "label": "good"}]}
    result, *_ = asked(answer, api="classify", prompt="{completion}")
    (failure,) = result.failures()
    assert '2 numbers in "{' in failure.reason
    assert "parse=parse.json(" in failure.reason
    result, *_ = asked(answer, api="classify", prompt="{completion}", parse=parse.json("data.0.probs.1"))
    assert result.rewards.item() == 0.75
    steps = {"data": [{"data": [[0.1], [0.2], [0.9]]}]}
    result, *_ = asked(steps, api="pooling", prompt="{completion}", parse=parse.json("data.0.data.-1.0"))
    assert result.rewards.item() == pytest.approx(0.9)


def test_the_newer_name_of_the_longest_answer() -> None:
    _, body, *_ = asked(
        chat_completion("7"), prompt="{completion}", max_tokens=32, body={"max_completion_tokens": 64}, temperature=None
    )
    assert body["max_completion_tokens"] == 64
    assert not {"max_tokens", "temperature"} & set(body)
    for address, name in (
        ("https://api.openai.com/v1", b'"max_completion_tokens":32'),
        ("https://mine.openai.azure.com/openai/v1", b'"max_completion_tokens":32'),
        ("http://localhost:8000/v1", b'"max_tokens":32'),
        ("https://api.openai.com.example/v1", b'"max_tokens":32'),
    ):
        plan = judge(base_url=address, model="m", prompt="{completion}", max_tokens=32).spec.http
        assert plan is not None
        assert name in b"".join(piece for piece in plan.body if isinstance(piece, bytes)).replace(b" ", b"")


@pytest.mark.parametrize("address", ["/openai/v1", "/openai/deployments/gpt?api-version=2024-10-21"])
def test_azure(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting of docs/judges.md: a header for the key, and a version in the address."""
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-secret")
    _, _, path, sent = asked(
        chat_completion("7"),
        base=address,
        prompt="{completion}",
        api_key_env="AZURE_OPENAI_API_KEY",
        headers={"api-key": "{key}"},
    )
    before, _, query = address.partition("?")
    assert path == f"{before}/chat/completions" + (f"?{query}" if query else "")
    assert sent["api-key"] == "azure-secret"
    assert "authorization" not in sent
