"""Conversations for judges: as text with roles and tool calls, or as messages of a request.

- No turn, tool call or result is dropped; what can't be sent is refused with its place.
- An image goes as a data URL and is encoded once a batch, however many samples share it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Images", "as_messages", "is_messages", "transcript", "turns"]

_SIGNATURES = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"BM", "bmp"))


def is_messages(value: object) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


def transcript(messages: Sequence[Mapping[str, Any]]) -> str:
    """A single message is its text; several are told apart by who says it."""
    return _content(messages[0]) if len(messages) == 1 else turns(messages, "")


def turns(value: object, role: str) -> str:
    """A conversation with the role before each message; a plain text is one of `role`."""
    messages = value if is_messages(value) else [{"role": role, "content": value}]
    assert isinstance(messages, Sequence)
    return "\n\n".join(f"{_speaker(message)}: {_content(message)}" for message in messages)


def as_messages(value: object, role: str, images: Images, given: object = None) -> list[dict[str, Any]]:
    """The messages of a request: as they are, with images as data URLs.

    Args:
        role: Whose message a plain text is.
        given: The sample's images; they fill the ``{"type": "image"}`` parts that hold none, in
            order. Where there are no such parts, the first user's message shows them.

    Raises:
        ValueError: There are not as many images as places for them.
        TypeError: Something is no message or no image.
    """
    messages = value if is_messages(value) else [{"role": role, "content": value}]
    assert isinstance(messages, Sequence)
    waiting = list(_listed(given))
    made = [_sendable(message, images, waiting) for message in messages]
    if waiting and len(waiting) == len(_listed(given)):
        _show_first(made, [images.part(image) for image in waiting])
    elif waiting:
        raise ValueError(f"{len(waiting)} of its images have no place in the messages: no {{'type': 'image'}} is left")
    return made


class Images:
    """Images of a batch as data URLs."""

    def __init__(self) -> None:
        # By identity: the samples of a group share their images. Each is kept alive with its URL.
        self._known: dict[int, tuple[object, str]] = {}

    def part(self, image: object) -> dict[str, Any]:
        """The part of a message that shows an image."""
        return {"type": "image_url", "image_url": {"url": self.url(image)}}

    def url(self, image: object) -> str:
        """The address of an image: given, or the image itself.

        Raises:
            TypeError: It is no image.
        """
        if isinstance(image, str):
            if image.startswith(("data:", "http://", "https://")):
                return image
            raise TypeError("an image given as a string must be a data: or http(s): URL; files are not read")
        known = self._known.get(id(image))
        if known is None:
            kind, data = _encoded(image)
            known = self._known[id(image)] = image, f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        return known[1]

    def parts(self, given: object) -> str:
        """The images of a sample as JSON, each with a comma before it."""
        return "".join(f",{json.dumps(self.part(image))}" for image in _listed(given))


def _listed(given: object) -> Sequence[object]:
    if given is None:
        return ()
    return given if isinstance(given, (list, tuple)) else [given]


def _encoded(image: Any) -> tuple[str, bytes]:
    """What kind of image it is, and its bytes."""
    if isinstance(image, Mapping) and image.get("bytes") is not None:
        image = image["bytes"]  # as datasets hold images that are not decoded
    if isinstance(image, (bytes, bytearray, memoryview)):
        data = bytes(image)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return "webp", data
        kind = next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)
        if kind is None:
            raise TypeError("these bytes are no PNG, JPEG, GIF, BMP or WebP")
        return kind, data
    if not (hasattr(image, "save") and hasattr(image, "mode")):
        raise TypeError(f"a {type(image).__name__} is not an image: give a PIL image, bytes or a URL")
    out = io.BytesIO()
    image.save(out, format="PNG")
    return "png", out.getvalue()


def _speaker(message: Mapping[str, Any]) -> str:
    name = message.get("name")
    return f"{message['role']} ({name})" if isinstance(name, str) and name else str(message["role"])


def _content(message: Mapping[str, Any]) -> str:
    """What a message says, with its tool calls below."""
    texts = [_text(message.get("content"))]
    texts += [_called(call) for call in _calls(message)]
    return "\n".join(text for text in texts if text)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):  # a tool's result that is no text
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


def _called(call: Any) -> str:
    """A tool call: its name and arguments."""
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    if not isinstance(function, Mapping):
        return f"[tool call] {call}"
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
    return f"[tool call] {function.get('name')}({arguments})"


def _sendable(message: Mapping[str, Any], images: Images, waiting: list[object]) -> dict[str, Any]:
    """A message as servers take it."""
    sent = {name: value for name, value in message.items() if value is not None or name == "content"}
    content = sent.get("content")
    if isinstance(content, (list, tuple)):
        sent["content"] = [_part(part, images, waiting) for part in content]
    elif content is not None and not isinstance(content, str):
        sent["content"] = _text(content)
    if isinstance(sent.get("tool_calls"), (list, tuple)):
        sent["tool_calls"] = [_call(call, index) for index, call in enumerate(sent["tool_calls"])]
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
        return images.part(image)
    if kind == "image_url" and isinstance(part.get("image_url"), str):
        return images.part(part["image_url"])
    # Arrow fills the fields that other parts have with None.
    return {name: value for name, value in part.items() if value is not None}


def _call(call: Any, index: int) -> Any:
    """A tool call as chat completions have it: arguments as JSON text, with an id and a type."""
    if not isinstance(call, Mapping):
        raise TypeError(f"tool call {index} is a {type(call).__name__}, not a dict")
    function = call.get("function", call)
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False, default=str)
    named = {"name": function.get("name"), "arguments": arguments}
    return {"id": call.get("id") or f"call_{index}", "type": "function", "function": named}
