"""``judge``: an LLM that grades, as a reward function that needs no Python for a request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from guerdon import parse as parses
from guerdon._http.address import address, endpoint
from guerdon._http.body import Text
from guerdon._http.options import label, made, more, text
from guerdon._http.reward import HttpReward
from guerdon._http.template import template
from guerdon._units import number
from guerdon.errors import RegistrationError
from guerdon.limits import Limit
from guerdon.parse import Parse

__all__ = ["judge"]

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}


def judge(
    *,
    base_url: str,
    model: str,
    prompt: str | Sequence[Mapping[str, str]],
    parse: Parse | None = None,
    system: str | None = None,
    api: Literal["chat", "completions"] = "chat",
    max_tokens: int | None = None,
    temperature: float | None = 0.0,
    response_format: Mapping[str, Any] | Literal["json_object", "json_schema"] | None = None,
    body: Mapping[str, Any] | None = None,
    api_key_env: str | None = None,
    api_key_file: str | None = None,
    headers: Mapping[str, str] | None = None,
    http2: bool = False,
    ca_file: str | None = None,
    name: str = "judge",
    timeout: float | None = None,
    total_timeout: float | None = None,
    retries: int = 3,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
) -> HttpReward:
    """Make a reward function that asks a model behind an OpenAI-compatible server, one request a sample.

    Requests are made, sent and read without Python: thousands may be under way at a time.

    Args:
        base_url: Of the server, as its other clients have it: ``"http://localhost:8000/v1"``.
        model: Its name there.
        prompt: What the judge is asked, with the sample's columns as in ``str.format``: ``"Rate this: {completion}"``. Any
            column of the dataset, ``{prompt}``, ``{completion}``, and ``{text}``, the last assistant message. Messages are
            filled in as their text. A list of messages, ``[{"role": …, "content": …}]``, is asked as it is.
        parse: How the score is read out of the answer, see `guerdon.parse`; the first number by default.
        system: A system message before the prompt, a template too.
        api: ``"chat"`` or ``"completions"``, for models without a chat template.
        max_tokens: Of the answer; the server's own default if None (1 for ``parse.logprob``).
        temperature: None leaves it to the server.
        response_format: Passed on as it is; ``"json_object"``; or ``"json_schema"``, the schema with a number in the field of
            ``parse.json(field)``. A server that has none answers with an error.
        body: More fields of the request's JSON, also in place of those above.
        api_key_env: Name of the variable of the environment that holds the API key.
        api_key_file: File that holds it.
        headers: Of each request; ``{key}`` in one stands for the key, which else goes as ``Authorization: Bearer``.
        http2: Speak HTTP/2, which takes fewer connections; the server must know it.
        ca_file: Certificates (PEM) to trust beside the system's.
        name: In metrics, files and messages, unique in a dispatcher.
        timeout: Seconds that one attempt may take, from connecting to the last byte. Default 30.
        total_timeout: As for `guerdon.reward`, like the options below.
        retries: Attempts after the first: for timeouts, broken connections, 408, 425 and 5xx, and answers without a score;
            not for other statuses. 429 puts a call off, see `guerdon.Limit`.
        limit: Requests at a time, 256 by default, fewer when the server says "later"; and rates. While the server is dead calls wait,
            for five minutes at most.

    Raises:
        RegistrationError: Something of it can't work.

    Examples:
        >>> from guerdon import judge, parse
        >>> judge(
        ...     base_url="http://localhost:8000/v1",
        ...     model="Qwen/Qwen3-8B",
        ...     prompt="Question: {prompt}\\nAnswer: {completion}\\nGrade it from 0 to 10 in <score></score>.",
        ...     parse=parse.tag("score"),
        ... )
        <reward function 'judge': http://localhost:8000/v1/chat/completions, timeout 30 s>
    """
    given = dict(locals())
    name = label(name)
    if api not in tuple(_PATHS):
        raise RegistrationError(f"reward function {name!r}: api={api!r}: expected 'chat' or 'completions'.")
    parse = parses.number() if parse is None else parse
    if not isinstance(parse, Parse):
        raise RegistrationError(
            f"reward function {name!r}: parse={parse!r}: expected one of guerdon.parse, as parse.number()."
        )
    asked: dict[str, Any] = {"model": text(name, "model", model), **_question(name, api, prompt, system)}
    if parse.kind == "logprob":
        asked |= {
            "max_tokens": 1,
            **({"logprobs": True, "top_logprobs": parse.top} if api == "chat" else {"logprobs": parse.top}),
        }
    if max_tokens is not None:
        asked["max_tokens"] = _tokens(name, max_tokens)
    if temperature is not None:
        asked["temperature"] = _temperature(name, temperature)
    if response_format is not None:
        asked["response_format"] = _format(name, response_format, parse)
    added = more(name, body)
    if added.get("stream"):
        raise RegistrationError(
            f"reward function {name!r}: body={{'stream': …}}: an answer is read as a whole. Leave it out."
        )
    url = endpoint(address(name, "base_url", base_url), _PATHS[api])
    return made(judge, given, {**asked, **added}, url=url, api=api, parse=parse)


def _question(name: str, api: str, prompt: object, system: object) -> dict[str, Any]:
    """What is asked, as fields of the request."""
    if api == "completions":
        if not isinstance(prompt, str) or system is not None:
            raise RegistrationError(f"reward function {name!r}: with api='completions' the prompt is one text.")
        return {"prompt": Text(template(text(name, "prompt", prompt), name, "prompt"))}
    messages: list[Any] = []
    if system is not None:
        messages.append({"role": "system", "content": text(name, "system", system)})
    if isinstance(prompt, str):
        messages.append({"role": "user", "content": text(name, "prompt", prompt)})
    elif isinstance(prompt, Sequence) and prompt:
        messages += prompt
    else:
        raise RegistrationError(f"reward function {name!r}: prompt={prompt!r}: expected a text or a list of messages.")
    asked = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str) or "role" not in message:
            raise RegistrationError(
                f"reward function {name!r}: prompt: {message!r} is no message; expected {{'role': …, 'content': …}} with texts."
            )
        asked.append({**message, "content": Text(template(message["content"], name, "prompt"))})
    return {"messages": asked}


def _tokens(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RegistrationError(
            f"reward function {name!r}: max_tokens={value!r}: expected a whole number of at least 1."
        )
    return value


def _temperature(name: str, value: object) -> float:
    found = number(value)
    if not 0 <= found < math.inf:
        raise RegistrationError(
            f"reward function {name!r}: temperature={value!r}: expected a number of at least 0, or None to leave it to the "
            "server."
        )
    return found


def _format(name: str, value: object, parse: Parse) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if value == "json_object":
        return {"type": "json_object"}
    if value == "json_schema" and parse.kind == "json":
        schema: dict[str, Any] = {"type": "number"}
        for part in reversed(parse.value.split(".")):
            schema = {"type": "object", "properties": {part: schema}, "required": [part], "additionalProperties": False}
        return {"type": "json_schema", "json_schema": {"name": "judgment", "strict": True, "schema": schema}}
    raise RegistrationError(
        f"reward function {name!r}: response_format={value!r}: expected a dict, 'json_object', or 'json_schema' with "
        "parse=parse.json(field)."
    )
