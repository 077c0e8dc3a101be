"""``POST /verify``: NeMo-Gym's resources servers.

- ``{"responses_create_params", "response", …}`` comes back with ``reward``, as NeMo-Gym's own
  servers answer; other fields are columns.
- ``reward`` has to be a number there: a failure is a mask, ``mask_sample`` (also in
  ``instance_config``, where NeMo-RL looks for it), with ``failure_reason`` and the ``failure_kind``
  that metrics are grouped by; the number under a mask means nothing.
- Prompts and completions are those of OpenAI's responses API, as conversations or texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon._serve.errors import RequestError
from guerdon._serve.fields import refuse_reserved
from guerdon._serve.protocols.protocol import ClientProtocol, describe
from guerdon._serve.samples import Outcome, Request

_OWN = ("responses_create_params", "response", "prompt", "completion", "text")
_MASK = "mask_sample"


def _read(fields: Mapping[str, Any], query: Mapping[str, str]) -> Request:
    parameters, response = fields.get("responses_create_params"), fields.get("response")
    if not isinstance(parameters, dict) or not isinstance(response, dict):
        raise RequestError(400, "expected the objects 'responses_create_params' and 'response'.")
    if not isinstance(fields.get("instance_config") or {}, dict):
        raise RequestError(400, "'instance_config' has to be an object.")
    columns = {name: [value] for name, value in fields.items() if name not in _OWN}
    refuse_reserved(columns, "completions", "prompts")
    columns["responses_create_params"] = [parameters]
    columns["response"] = [response]
    prompt = _prompt(parameters)
    completion = _completion(response, as_text=isinstance(prompt, str))
    return Request([completion], [prompt], columns, alone=True, function=query.get("function"))


def _prompt(parameters: Mapping[str, Any]) -> object:
    """Returns the input of the model: a text, or messages.

    Raises:
        RequestError: 400, it is neither.
    """
    given = parameters.get("input")
    if isinstance(given, str):
        return given
    messages = _messages(given, "responses_create_params.input")
    instructions = parameters.get("instructions")
    return [{"role": "system", "content": instructions}, *messages] if isinstance(instructions, str) else messages


def _completion(response: Mapping[str, Any], *, as_text: bool) -> object:
    """Returns the output of the model: messages, with calls of tools and their results; where the
    prompt was a text and there is nothing but text, a text.

    Raises:
        RequestError: 400, it is not a list of items.
    """
    messages = _messages(response.get("output"), "response.output")
    if as_text and all(message["role"] == "assistant" and "tool_calls" not in message for message in messages):
        return "".join(message["content"] for message in messages)
    return messages


def _messages(items: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestError(400, f"'{where}' has to be a list of items.")
    made = (_message(item, f"{where}[{place}]") for place, item in enumerate(items))
    return [message for message in made if message is not None]


def _message(item: dict[str, Any], where: str) -> dict[str, Any] | None:
    """None for items that are not part of the conversation, such as reasoning."""
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role", "assistant")
        if not isinstance(role, str):
            raise RequestError(400, f"'{where}.role' has to be a text.")
        return {"role": role, "content": _text(item.get("content"), f"{where}.content")}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        content = _text(item.get("output"), f"{where}.output")
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    if not isinstance(kind, str):
        raise RequestError(400, f"'{where}.type' has to be a text.")
    return None


def _text(content: object, where: str) -> str:
    """The text of a content; a refusal or an image has none. Contents that can't be read are
    refused, as an empty text would get a reward that nobody's completion has.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content]
        if all(text is None or isinstance(text, str) for text in texts):
            return "".join(text or "" for text in texts)
    raise RequestError(400, f"'{where}' has to be a text or a list of parts, each with its 'text'.")


def _write(fields: Mapping[str, Any], request: Request, outcomes: Sequence[Outcome]) -> Any:
    (one,) = outcomes
    if one.reward is not None:
        return {**fields, "reward": one.reward, _MASK: False, "failure_kind": None, "failure_reason": None}
    config = {**(fields.get("instance_config") or {}), _MASK: True}
    why = {"failure_kind": f"guerdon:{one.status.label}", "failure_reason": describe(one)}
    return {**fields, "reward": 0.0, _MASK: True, **why, "instance_config": config}


NEMO_GYM = ClientProtocol("/verify", _read, _write, takes_groups=False)
