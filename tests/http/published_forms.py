"""Requests of Anthropic's messages and OpenAI's responses, checked by their published references:
what is missing, unknown or out of order is an AssertionError."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

Body = dict[str, Any]

MEDIA = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_anthropic(body: Body) -> None:
    """https://docs.anthropic.com/en/api/messages"""
    known = {"model", "messages", "max_tokens", "system", "temperature", "tools", "tool_choice", "stream"}
    assert body.keys() <= known, body.keys() - known
    assert isinstance(body["max_tokens"], int)
    system = body.get("system", "x")
    if isinstance(system, list):
        assert system
        for block in system:
            assert block.keys() == {"type", "text"}
            assert block["type"] == "text"
            assert block["text"].strip()
    else:
        assert isinstance(system, str)
    messages = body["messages"]
    assert messages[0]["role"] == "user"
    tools = {tool["name"] for tool in body.get("tools", [])}
    assert all(_NAME.fullmatch(name) for name in tools)
    assert all(tool["input_schema"]["type"] == "object" for tool in body.get("tools", []))
    assert ("tools" in body) == bool(tools) == ("tool_choice" in body)
    waiting: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        assert message.keys() == {"role", "content"}
        assert message["role"] in ("user", "assistant")
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert set(given) == waiting, "each call has its result in the next message"
        assert len(given) == len(waiting)
        assert [block["type"] for block in blocks[: len(given)]] == ["tool_result"] * len(given), "results come first"
        waiting = set()
        for block in blocks:
            _anthropic_block(block, message["role"])
            if block["type"] == "tool_use":
                assert block["name"] in tools
                assert block["id"] not in seen
                seen.add(block["id"])
                waiting.add(block["id"])
    assert not waiting


def _anthropic_block(block: Body, role: str) -> None:
    kind = block["type"]
    if kind == "text":
        assert block.keys() == {"type", "text"}
        assert block["text"].strip(), "text content blocks must be non-empty"
    elif kind == "image":
        assert role == "user"
        source = block["source"]
        if source["type"] == "base64":
            assert source.keys() == {"type", "media_type", "data"}
            assert source["media_type"] in MEDIA
            assert base64.b64decode(source["data"], validate=True)
        else:
            assert source.keys() == {"type", "url"}
            assert source["url"].startswith("http")
    elif kind == "tool_use":
        assert role == "assistant"
        assert block.keys() == {"type", "id", "name", "input"}
        assert re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"])
        assert isinstance(block["input"], dict)
    else:
        assert kind == "tool_result", kind
        assert role == "user"
        assert block.keys() <= {"type", "tool_use_id", "content"}
        for each in block.get("content", []):
            assert each["type"] in ("text", "image")
            _anthropic_block(each, "user")


def check_responses(body: Body) -> None:
    """https://platform.openai.com/docs/api-reference/responses/create"""
    known = {"model", "input", "instructions", "temperature", "store", "max_output_tokens", "stream"}
    assert body.keys() <= known, body.keys() - known
    calls: list[str] = []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            assert item.keys() == {"type", "call_id", "name", "arguments"}
            assert _NAME.fullmatch(item["name"])
            assert len(item["call_id"]) <= 64
            assert item["call_id"] not in calls
            json.loads(item["arguments"])
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            assert item.keys() == {"type", "call_id", "output"}
            calls.remove(item["call_id"])
            if not isinstance(item["output"], str):
                _responses_content(item["output"], "user")
        else:
            assert kind == "message", kind
            assert item.keys() <= {"type", "role", "content"}
            assert item["role"] in ("user", "assistant", "system", "developer")
            _responses_content(item["content"], item["role"])
    assert not calls, "no tool output found for function call"


def _responses_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        assert content
        return
    assert content
    assert role != "assistant", "an assistant's message is text here"
    for part in content:
        if part["type"] == "input_text":
            assert part.keys() == {"type", "text"}
        else:
            assert part["type"] == "input_image", part["type"]
            assert part.keys() == {"type", "image_url", "detail"}
            assert part["detail"] in ("low", "high", "auto")
            assert part["image_url"].startswith(("data:image/", "http"))


CHECKS = {"anthropic": check_anthropic, "responses": check_responses}


def answered(api: str, text: str) -> Body:
    """An answer with this text."""
    if api == "anthropic":
        return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    if api == "responses":
        part = {"type": "output_text", "text": text}
        return {"status": "completed", "output": [{"type": "message", "content": [part]}]}
    return {"choices": [{"message": {"content": text}}]}
