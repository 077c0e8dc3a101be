"""Messages, as chat completions have them (`messages`), in the forms of Anthropic's messages and of
OpenAI's responses.

- Anthropic's system messages go apart (`system_texts`); its tools must be named (`tools`).
- Calls and results are paired, by id or in order. One without the other goes as text: both APIs
  refuse it by themselves.
- Content that an API has no place for is refused, never dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon._lanes.http.images import image_part
from guerdon._lanes.http.messages import as_call, called, text_of

__all__ = ["in_form", "system_texts", "tools"]

_SYSTEM = ("system", "developer")
_RESULTS = ("tool", "function")
# Replaces a message without text, which the APIs refuse.
_EMPTY = "(no text)"

Message = dict[str, Any]


@dataclass
class _ToolCall:
    """A tool call with its result, if it has one.

    Attributes:
        id: Unique in its conversation, whatever its own was.
        call: As chat completions have it.
        result: The message with what the tool gave.
    """

    id: str
    call: Message
    result: Message | None = None

    @property
    def name(self) -> str:
        """Returns the name in the form of the APIs: letters, digits, _ and -."""
        return re.sub(r"[^a-zA-Z0-9_-]", "_", str(self.call["function"]["name"]))[:64]

    @property
    def arguments(self) -> dict[str, Any]:
        given = self.call["function"]["arguments"]
        try:
            found = json.loads(given)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"arguments": given}


@dataclass
class _Turn:
    """A message with its calls, and the results behind it that belong to none of them."""

    message: Message
    calls: list[_ToolCall]
    others: list[Message]


def in_form(messages: Sequence[Message], api: str, column: str) -> list[Message]:
    """The messages of one column, as an API takes them.

    Args:
        api: ``"chat"``, as they are; ``"anthropic"``, without its system messages;
            ``"responses"``.

    Raises:
        TypeError, ValueError: The API has no place for something.
    """
    if api == "chat":
        return list(messages)
    made = _anthropic if api == "anthropic" else _responses
    return [each for turn in _turns(messages, column) for each in made(turn)]


def system_texts(messages: Sequence[Message]) -> list[Message]:
    """The system messages of a conversation, as the blocks of Anthropic's ``system``."""
    texts = [text_of(message.get("content")) for message in messages if message["role"] in _SYSTEM]
    return [{"type": "text", "text": text} for text in texts if text.strip()]


def tools(messages: Sequence[Message]) -> list[Message]:
    """The tools that a conversation calls, without which Anthropic's API refuses the calls."""
    names = dict.fromkeys(call.name for turn in _turns(messages, "") for call in turn.calls if call.result is not None)
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _turns(messages: Sequence[Message], column: str) -> Iterator[_Turn]:
    number, last = 0, None
    for message in messages:
        if message["role"] in _RESULTS and last is not None:
            call = _asked_by(last.calls, message)
            if call is None:
                last.others.append(message)
            else:
                call.result = message
            continue
        if last is not None:
            yield last
        calls = []
        single = message.get("function_call")
        for call in message.get("tool_calls") or ([] if single is None else [as_call(single, 0)]):
            number += 1
            calls.append(_ToolCall(f"{column}_{number}", call))
        last = _Turn(message, calls, [])
    if last is not None:
        yield last


def _asked_by(calls: Sequence[_ToolCall], result: Message) -> _ToolCall | None:
    """The call that a result answers: that with its id, or else the first without a result."""
    waiting = [call for call in calls if call.result is None]
    given = result.get("tool_call_id")
    named = [call for call in waiting if given is not None and call.call["id"] == given]
    if named or given is not None:
        return named[0] if named else None
    same = [call for call in waiting if call.call["function"]["name"] == result.get("name")]
    return next(iter(same or waiting), None)


def _text_turns(turn: _Turn) -> tuple[str, list[_ToolCall], list[str]]:
    """Returns the text of a message, with the calls that have no result; its other calls; and the
    results of no call, as text."""
    message = turn.message
    alone = [called(call.call) for call in turn.calls if call.result is None]
    spoken = "\n".join(text for text in (text_of(message.get("content")), *alone) if text.strip())
    paired = [call for call in turn.calls if call.result is not None]
    results = [message] if message["role"] in _RESULTS else []
    return spoken, paired, [_result(each) for each in (*results, *turn.others)]


def _result(message: Message) -> str:
    name = message.get("name")
    return f"{'tool' if not name else f'tool ({name})'}: {text_of(message.get('content'))}"


def _parts(message: Message, api: str) -> list[Message]:
    """The content of a message in parts, without empty texts."""
    content = message.get("content")
    text = "input_text" if api == "responses" else "text"
    made: list[Message] = []
    given: list[Message] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    for part in given:
        kind = part.get("type")
        if kind == "image_url" and isinstance(part.get("image_url"), dict):
            shown = part["image_url"]
            made.append(image_part(str(shown.get("url")), api, shown.get("detail")))
        elif kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
            made += [{"type": text, "text": part["text"]}] if part["text"].strip() else []
        else:
            raise TypeError(f"api={api!r} has no place for a part of type {kind!r}")
    return made


def _refuse_images(turn: _Turn, api: str) -> None:
    """Refuses an assistant's message that shows an image."""
    if any(part["type"] not in ("text", "input_text") for part in _parts(turn.message, api)):
        raise ValueError(f"api={api!r} takes no images in an assistant's message")


def _anthropic(turn: _Turn) -> list[Message]:
    role = turn.message["role"]
    if role in _SYSTEM:
        return []
    spoken, paired, others = _text_turns(turn)
    made: list[Message] = []
    if role == "assistant":
        _refuse_images(turn, "anthropic")
        blocks: list[Message] = [{"type": "text", "text": spoken}] if spoken else []
        blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in paired]
        made.append({"role": "assistant", "content": blocks or [{"type": "text", "text": _EMPTY}]})
    elif role not in _RESULTS:
        made.append(
            {"role": "user", "content": _parts(turn.message, "anthropic") or [{"type": "text", "text": _EMPTY}]}
        )
    results: list[Message] = []
    for call in paired:
        assert call.result is not None
        content = _parts(call.result, "anthropic")
        results.append({"type": "tool_result", "tool_use_id": call.id, **({"content": content} if content else {})})
    results += [{"type": "text", "text": text} for text in others]
    return [*made, {"role": "user", "content": results}] if results else made


def _responses(turn: _Turn) -> list[Message]:
    role = turn.message["role"]
    spoken, paired, others = _text_turns(turn)
    made: list[Message] = []
    if role == "assistant":
        _refuse_images(turn, "responses")
        if spoken or not paired:
            made.append({"role": "assistant", "content": spoken or _EMPTY})
    elif role not in _RESULTS:
        parts = _parts(turn.message, "responses") or [{"type": "input_text", "text": _EMPTY}]
        made.append({"role": role, "content": parts})
    for call in paired:
        given = json.dumps(call.arguments, ensure_ascii=False)
        made.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": given})
    for call in paired:
        assert call.result is not None
        parts = _parts(call.result, "responses")
        shown = any(part["type"] != "input_text" for part in parts)
        output = parts if shown else "".join(part["text"] for part in parts)
        made.append({"type": "function_call_output", "call_id": call.id, "output": output})
    return [*made, *({"role": "user", "content": text} for text in others)]
