"""``POST /score``: our own protocol, which `guerdon.http_reward` speaks as it is.

- One sample is ``{"prompt": …, "completion": …, column: value}``, answered by ``{"reward",
  "status", "reason"}``; many are ``{"prompts": […], "completions": […], column: […]}``, answered
  by ``{"rewards", "status", "reasons"}``, lists in the order of the request.
- A sample without a reward has null, and the status of `guerdon.Status` that says why.
- ``num_generations`` makes groups; ``?function=`` asks for one function's rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon._serve.errors import RequestError
from guerdon._serve.fields import GROUP_SIZE, group_size, list_of, refuse_reserved, text_or_messages
from guerdon._serve.protocols.protocol import ClientProtocol
from guerdon._serve.samples import Outcome, Request


def _read(fields: Mapping[str, Any], query: Mapping[str, str]) -> Request:
    columns = {name: value for name, value in fields.items() if name not in GROUP_SIZE}
    refuse_reserved(columns)
    size, function = group_size(fields, query), query.get("function")
    if "completions" in columns or "texts" in columns:
        return _many(columns, size, function)
    if size not in (None, 1):
        raise RequestError(400, "a group has several samples: send lists, 'completions' and 'prompts'.")
    name = "completion" if "completion" in columns else "text"
    if name not in columns:
        raise RequestError(400, "expected 'completion', or a list 'completions'.")
    completion = text_or_messages(columns.pop(name), name)
    columns.pop("text", None)  # the server makes it of the completion
    prompt = columns.pop("prompt", None)
    if "prompts" in columns:
        raise RequestError(400, "'prompts' go with 'completions', 'prompt' with 'completion'.")
    prompts = None if prompt is None else [text_or_messages(prompt, "prompt")]
    lists = {name: [value] for name, value in columns.items()}
    return Request([completion], prompts, lists, size, alone=True, function=function)


def _many(columns: dict[str, Any], size: int | None, function: str | None) -> Request:
    for singular in ("completion", "prompt", "text"):
        if singular in columns:
            raise RequestError(400, f"{singular!r} is for one sample: with lists it is {singular + 's'!r}.")
    name = "completions" if "completions" in columns else "texts"
    completions = [text_or_messages(one, name) for one in list_of(columns, name)]
    columns.pop(name)
    columns.pop("texts", None)
    if not completions:
        raise RequestError(400, f"{name!r} is empty.")
    prompts = None
    if columns.get("prompts") is not None:
        prompts = [text_or_messages(one, "prompts") for one in list_of(columns, "prompts", len(completions))]
    columns.pop("prompts", None)
    lists = {name: list_of(columns, name, len(completions)) for name in columns}
    return Request(completions, prompts, lists, size, function=function)


def _write(fields: Mapping[str, Any], request: Request, outcomes: Sequence[Outcome]) -> Any:
    if request.alone:
        (one,) = outcomes
        return {"reward": one.reward, "status": one.status.label, "reason": one.reason}
    return {
        "rewards": [one.reward for one in outcomes],
        "status": [one.status.label for one in outcomes],
        "reasons": [one.reason for one in outcomes],
    }


SCORE = ClientProtocol("/score", _read, _write, options=("function", *GROUP_SIZE))
