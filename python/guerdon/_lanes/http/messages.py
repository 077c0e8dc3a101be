"""Conversations for judges: as text with roles and tool calls, or as messages of a request.

No turn, tool call or result is dropped; what can't be sent is refused with its place.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from guerdon._lanes.http.images import Images, image_part, listed

__all__ = ["as_call", "as_messages", "called", "is_messages", "text_of", "transcript", "turns", "with_calls"]


def is_messages(value: object) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


def transcript(messages: Sequence[Mapping[str, Any]]) -> str:
    """A single message is its text; several are told apart by their roles."""
    return _content(messages[0]) if len(messages) == 1 else turns(messages, "")


def turns(value: object, role: str) -> str:
    """A conversation with the role before each message; a plain text is one of `role`."""
    return "\n\n".join(f"{_speaker(message)}: {_content(message)}" for message in _messages(value, role))


def as_messages(value: object, role: str, images: Images, given: object = None) -> list[dict[str, Any]]:
    """The messages of a request: as they are, with images as data URLs.

    Args:
        role: Whose message a plain text is.
        given: The sample's images; they fill the ``{"type": "image"}`` parts that hold none, in
            order. Where there are no such parts, the first user's message shows them.

    Raises:
        ValueError: There are not as many images as places for them.
        TypeError: A value is not a message or not an image.
    """
    waiting = list(listed(given))
    made = [_sendable(message, images, waiting) for message in _messages(value, role)]
    if waiting and len(waiting) == len(listed(given)):
        _show_first(made, [_shown(images, image) for image in waiting])
    elif waiting:
        raise ValueError(f"{len(waiting)} of its images have no place in the messages: no {{'type': 'image'}} is left")
    return made


def with_calls(value: object, role: str) -> list[dict[str, Any]]:
    """The messages with their tool calls in one form; their content is left as it is.

    Raises:
        TypeError: A tool call has an unknown form.
    """
    messages = _messages(value, role)
    calls = ([as_call(call, index) for index, call in enumerate(_calls(message))] for message in messages)
    return [{**message, "tool_calls": each} for message, each in zip(messages, calls, strict=True)]


def _messages(value: Any, role: str) -> Sequence[Mapping[str, Any]]:
    return value if is_messages(value) else [{"role": role, "content": value}]


def _speaker(message: Mapping[str, Any]) -> str:
    name = message.get("name")
    return f"{message['role']} ({name})" if isinstance(name, str) and name else str(message["role"])


def _content(message: Mapping[str, Any]) -> str:
    """Returns the text of a message, with its tool calls below."""
    texts = [text_of(message.get("content"))]
    texts += [called(call) for call in _calls(message)]
    return "\n".join(text for text in texts if text)


def text_of(content: object) -> str:
    """Returns the text of a message's content, with a word for each part that is not text."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):  # a tool's result that is not text
        return json.dumps(content, ensure_ascii=False, default=str)
    if not isinstance(content, (list, tuple)):
        return "" if content is None else str(content)
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            kind = str(part.get("type", ""))
            text = part.get("text")
            texts.append(text if isinstance(text, str) else f"[{'image' if 'image' in kind else kind or 'part'}]")
    return "".join(texts)


def _calls(message: Mapping[str, Any]) -> Sequence[Any]:
    calls = message.get("tool_calls")
    if isinstance(calls, (list, tuple)):
        return calls
    single = message.get("function_call")
    return [] if single is None else [single]


def called(call: Any) -> str:
    """A tool call: its name and arguments."""
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    if not isinstance(function, Mapping):
        return f"[tool call] {call}"
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
    return f"[tool call] {function.get('name')}({arguments})"


def _sendable(message: Mapping[str, Any], images: Images, waiting: list[object]) -> dict[str, Any]:
    """Returns a message in the form that servers take."""
    sent = {name: value for name, value in message.items() if value is not None or name == "content"}
    content = sent.get("content")
    if isinstance(content, (list, tuple)):
        sent["content"] = [_part(part, images, waiting) for part in content]
    elif content is not None and not isinstance(content, str):
        sent["content"] = text_of(content)
    if isinstance(sent.get("tool_calls"), (list, tuple)):
        sent["tool_calls"] = [as_call(call, index) for index, call in enumerate(sent["tool_calls"])]
    return sent


def _show_first(messages: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    """Puts images before the text of the first user's message."""
    for message in messages:
        if message["role"] == "user":
            content = message.get("content")
            text = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
            message["content"] = [*parts, *text]
            return
    raise ValueError("its images have no place: there is no user's message")


def _part(part: Any, images: Images, waiting: list[object]) -> Any:
    """A part of a message, with its image as a URL."""
    if not isinstance(part, Mapping):
        return {"type": "text", "text": str(part)}
    kind = part.get("type")
    if kind == "image":
        image = next((part[name] for name in ("image", "url") if part.get(name) is not None), None)
        if image is None and isinstance(part.get("base64"), str):
            image = base64.b64decode(part["base64"])
        if image is None:
            if not waiting:
                raise ValueError("an {'type': 'image'} part has no image: pass images= with the column that has them")
            image = waiting.pop(0)
        return _shown(images, image)
    if kind == "image_url" and isinstance(part.get("image_url"), str):
        return _shown(images, part["image_url"])
    # Arrow fills the fields that other parts have with None.
    return {name: value for name, value in part.items() if value is not None}


def _shown(images: Images, image: object) -> dict[str, Any]:
    return image_part(images.url(image), "chat")


def as_call(call: Any, index: int) -> Any:
    """A tool call as chat completions have it: arguments as JSON text, with an id and a type."""
    if not isinstance(call, Mapping):
        raise TypeError(f"tool call {index} is a {type(call).__name__}, not a dict")
    function = call.get("function", call)
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False, default=str)
    named = {"name": function.get("name"), "arguments": arguments}
    return {"id": call.get("id") or f"call_{index}", "type": "function", "function": named}
