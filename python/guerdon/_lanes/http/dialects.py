"""The APIs that judges are asked by: where a request goes, and what its JSON is. Their answers are
read by the engine (``rust/http/src/dialect``).

- An option that an API lacks is refused, never dropped.
- The form of a request is decided here, once a judge: the engine only fills in the samples' texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from guerdon._lanes.http.body import Messages, OptionalPair, Parts, Repair, TemplateText
from guerdon._lanes.http.template import Field, template
from guerdon._system.units import number
from guerdon.errors import RegistrationError
from guerdon.parse import Parse

__all__ = ["PATHS", "SCORES", "Question", "headers", "request", "wants_newer_names"]

PATHS: Final = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "anthropic": "/v1/messages",
    "score": "/score",
    "classify": "/classify",
    "pooling": "/pooling",
}
# Reward models: they answer with a number.
SCORES: Final = ("score", "classify", "pooling")
_CONVERSATIONS: Final = ("chat", "responses", "anthropic")
# Anthropic's API wants a number; others have a default.
_LONGEST_MESSAGE: Final = 1024
# The least for OpenAI's responses.
_SHORTEST_RESPONSE: Final = 16


@dataclass(frozen=True)
class Question:
    """Content and options of a judge's request.

    Attributes:
        function: Its name, for messages.
        prompt: A text, messages, a pair of texts, or the fields of a request.
        max_tokens: Of the answer, by the name that the API has for it.
        newer: The server wants the newer name of chat completions, ``max_completion_tokens``.
        repair: The next attempt says what was wrong with an answer that can't be read.
        pass_messages: The sample's messages come first, as they are.
        images: The column of images that the last message shows, or several.
    """

    function: str
    api: str
    prompt: object
    system: object
    parse: Parse
    max_tokens: object = None
    newer: bool = False
    temperature: object = None
    response_format: object = None
    stream: bool = False
    repair: bool = False
    pass_messages: bool = False
    images: object = None

    def wrong(self, why: str) -> RegistrationError:
        """Returns the error with this problem."""
        return RegistrationError(f"reward function {self.function!r}: {why}")


def headers(api: str) -> dict[str, str]:
    """Returns the headers of an API, unless others are given; ``{key}`` is replaced by the key."""
    return {"x-api-key": "{key}", "anthropic-version": "2023-06-01"} if api == "anthropic" else {}


def request(asked: Question) -> dict[str, Any]:
    """The JSON of a request, less the model's name, with `TemplateText` in it.

    Raises:
        RegistrationError: The API is unknown, or it can't do what is asked for.
    """
    if asked.api not in tuple(PATHS):  # it may be anything
        known = ", ".join(map(repr, PATHS))
        raise asked.wrong(f"api={asked.api!r}: expected one of {known}.")
    shown = _images(asked)
    if asked.api not in _CONVERSATIONS and (asked.pass_messages or shown):
        raise asked.wrong(f"api={asked.api!r}: pass_messages= and images= need 'chat', 'responses' or 'anthropic'.")
    if asked.pass_messages and len(shown) > 1:
        raise asked.wrong(
            f"images={asked.images!r}: expected one column, whose images the messages of pass_messages= show."
        )
    if asked.api in SCORES:
        return _scored(asked)
    made = _conversation(asked) if asked.api in _CONVERSATIONS else _text_completion(asked)
    made |= _tokens(asked)
    if asked.parse.kind == "logprob":
        made |= _logprobs(asked)
    if asked.temperature is not None:
        made["temperature"] = _temperature(asked)
    if asked.response_format is not None:
        made |= _format(asked)
    if asked.stream:
        made["stream"] = True
        if asked.api in ("chat", "completions"):
            made["stream_options"] = {"include_usage": True}
    return made


def _conversation(asked: Question) -> dict[str, Any]:
    system: list[Any] = []
    if asked.system is not None:
        system = [{"role": "system", "content": _text(asked, "system", asked.system)}]
    messages = _messages(asked)
    # Another answer could have the same first token otherwise.
    end = [Repair()] if asked.repair and asked.parse.kind != "logprob" else []
    if asked.api == "chat":
        return {"messages": [*system, *_conversation_before(asked), *_shown(asked, messages), *end]}
    named = {"system" if asked.api == "anthropic" else "instructions": each["content"] for each in system}
    whole = [*_conversation_before(asked), *_shown(asked, messages), *end]
    if asked.api == "responses":
        # The provider would keep requests and answers otherwise.
        return {**named, "input": whole, "store": False}
    if any(each["role"] not in ("user", "assistant") for each in messages):
        raise asked.wrong("api='anthropic' knows the roles 'user' and 'assistant': pass a system message as system=.")
    return {**named, **_apart(asked, named), "messages": whole}


def _conversation_before(asked: Question) -> list[Messages]:
    """The sample's own messages, if they come first."""
    if not asked.pass_messages:
        return []
    return [
        Messages(Field("prompt", json=True, form="messages", images="".join(_images(asked)), api=asked.api)),
        Messages(Field("completion", json=True, form="messages", api=asked.api)),
    ]


def _apart(asked: Question, named: dict[str, Any]) -> dict[str, Any]:
    """Takes out the fields that Anthropic's API expects outside of the sample's own messages: their
    system messages, and the tools that they call."""
    if not asked.pass_messages:
        return {}

    def field(form: str) -> Field:
        return Field("prompt", json=True, form=form, also="completion", api=asked.api)

    text = named.get("system")
    system = OptionalPair(field("system")) if text is None else Parts(text, [field("more system")])
    return {"system": system, "tools": OptionalPair(field("tools"))}


def _images(asked: Question) -> list[str]:
    """The columns of images."""
    given: Any = asked.images
    names = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(name, str) and name for name in names) or (given is not None and not names):
        raise asked.wrong(f"images={given!r}: expected the name of a column, or a list of names.")
    return names


def _shown(asked: Question, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, the last with the sample's images unless those are in its own messages."""
    if asked.images is None or asked.pass_messages:
        return messages
    last = messages[-1]
    fields = [Field(name, json=True, form="images", api=asked.api) for name in _images(asked)]
    kind = "input_text" if asked.api == "responses" else "text"
    return [*messages[:-1], {**last, "content": Parts(last["content"], fields, kind)}]


def _messages(asked: Question) -> list[dict[str, Any]]:
    prompt = asked.prompt
    if isinstance(prompt, str):
        return [{"role": "user", "content": _text(asked, "prompt", prompt)}]
    if not isinstance(prompt, Sequence) or not prompt:
        raise asked.wrong(f"prompt={prompt!r}: expected a string or a list of messages.")
    messages = []
    for message in prompt:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str) or "role" not in message:
            raise asked.wrong(
                f"prompt: {message!r} is not a message; expected {{'role': …, 'content': …}} with strings."
            )
        messages.append({**message, "content": _template(asked, message["content"])})
    return messages


def _text_completion(asked: Question) -> dict[str, Any]:
    if not isinstance(asked.prompt, str) or asked.system is not None:
        raise asked.wrong("api='completions' takes one prompt string, without messages or system=.")
    return {"prompt": _text(asked, "prompt", asked.prompt)}


def _scored(asked: Question) -> dict[str, Any]:
    """A request to a reward model: a text or messages, a pair of texts, or any fields."""
    for option in ("system", "max_tokens", "response_format"):
        if getattr(asked, option) is not None:
            raise asked.wrong(f"api={asked.api!r} has no {option}=: a reward model answers with a number.")
    if asked.temperature not in (None, 0.0) or asked.stream:
        raise asked.wrong(f"api={asked.api!r} has neither temperature= nor stream=: a reward model writes no text.")
    prompt = asked.prompt
    if isinstance(prompt, Mapping) and prompt:
        return {str(name): _filled(asked, value) for name, value in prompt.items()}
    if asked.api == "score":
        if not isinstance(prompt, (tuple, list)) or len(prompt) != 2:
            raise asked.wrong(
                f"prompt={prompt!r}: api='score' takes two texts, as in prompt=('{{prompt}}', '{{completion}}'), or a dict "
                "of the request's fields."
            )
        return {name: _text(asked, "prompt", each) for name, each in zip(("text_1", "text_2"), prompt, strict=True)}
    if isinstance(prompt, str):
        return {"input": _text(asked, "prompt", prompt)}
    return {"messages": _messages(asked)}


def _filled(asked: Question, value: object) -> Any:
    """A value of the request, with the texts in it as templates."""
    if isinstance(value, str):
        return _template(asked, value)
    if isinstance(value, Mapping):
        return {str(name): _filled(asked, each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_filled(asked, each) for each in value]
    return value


def _text(asked: Question, option: str, value: object) -> TemplateText:
    if not isinstance(value, str) or not value.strip():
        raise asked.wrong(f"{option}={value!r}: expected a non-empty string.")
    return _template(asked, value, option)


def _template(asked: Question, text: str, option: str = "prompt") -> TemplateText:
    return TemplateText(template(text, asked.function, option))


def _tokens(asked: Question) -> dict[str, Any]:
    """Returns the field that bounds the answer's length."""
    most = asked.max_tokens
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise asked.wrong(f"max_tokens={most!r}: expected a whole number of at least 1.")
    if most is None:
        return {"max_tokens": _LONGEST_MESSAGE} if asked.api == "anthropic" else {}
    return {_bound(asked): most}


def _bound(asked: Question) -> str:
    """The name of the bound in this API."""
    if asked.api == "responses":
        return "max_output_tokens"
    return "max_completion_tokens" if asked.newer and asked.api == "chat" else "max_tokens"


def wants_newer_names(urls: Iterable[str]) -> bool:
    """Returns whether a server is OpenAI's own, whose newer models refuse ``max_tokens``."""
    hosts = [urlsplit(url).hostname or "" for url in urls]
    return any(host == "api.openai.com" or host.endswith(".openai.azure.com") for host in hosts)


def _logprobs(asked: Question) -> dict[str, Any]:
    """The probabilities of the first token, and no more than that token."""
    top = asked.parse.top
    given = asked.max_tokens is not None
    if asked.api == "chat":
        return {**({} if given else {_bound(asked): 1}), "logprobs": True, "top_logprobs": top}
    if asked.api == "completions":
        return {**({} if given else {"max_tokens": 1}), "logprobs": top}
    if asked.api == "responses":
        include = {"include": ["message.output_text.logprobs"], "top_logprobs": top}
        return include if given else {**include, "max_output_tokens": _SHORTEST_RESPONSE}
    raise asked.wrong(f"api={asked.api!r} has no log-probabilities: parse=parse.logprob() needs another API.")


def _temperature(asked: Question) -> float:
    found = number(asked.temperature)
    if not 0 <= found < math.inf:
        raise asked.wrong(
            f"temperature={asked.temperature!r}: expected a number of at least 0, or None to leave it to the server."
        )
    return found


def _format(asked: Question) -> dict[str, Any]:
    """The form of the answer, where the API puts it."""
    given = asked.response_format
    if isinstance(given, Mapping):
        form: Mapping[str, Any] = given
    elif given == "json_object":
        form = {"type": "json_object"}
    elif given == "json_schema" and _is_json(asked.parse):
        form = {"type": "json_schema", "json_schema": _schema(asked.parse)}
    else:
        raise asked.wrong(
            f"response_format={given!r}: expected a dict, 'json_object', or 'json_schema' with parse=parse.json(field) "
            "or parse.rubric(criteria)."
        )
    if asked.api == "responses":
        return {"text": {"format": _flat(form)}}
    if asked.api == "anthropic":
        flat = _flat(form)
        if flat.get("type") != "json_schema":
            raise asked.wrong(f"response_format={given!r}: api='anthropic' takes 'json_schema' or a dict of that type.")
        return {"output_config": {"format": {"type": "json_schema", "schema": flat.get("schema")}}}
    return {"response_format": form}


def _flat(form: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema without the ``json_schema`` object that chat completions put around it."""
    inner = form.get("json_schema")
    if not isinstance(inner, Mapping):
        return dict(form)
    return {**{name: value for name, value in form.items() if name != "json_schema"}, **inner}


def _is_json(parse: Parse) -> bool:
    return parse.kind == "json" or (parse.kind == "rubric" and parse.value == "json")


def _schema(parse: Parse) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "number"}
    if parse.kind == "rubric":
        judgment = _object({"reason": {"type": "string"}, "score": schema})
        schema = _object(dict.fromkeys((criterion for criterion, _ in parse.words), judgment))
    else:
        for part in reversed(parse.value.split(".")):
            schema = _object({part: schema})
    return {"name": "judgment", "strict": True, "schema": schema}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
