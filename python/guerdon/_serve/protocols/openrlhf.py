"""``POST /openrlhf``: OpenRLHF's ``remote_rm_url``.

- ``{"query": […], "prompts": […], "labels": […]}`` is answered by
  ``{"rewards": […], "scores": […], "extra_logs": {}}``: numbers alone, so a failure is status 422.
- The completion is what follows the prompt in the query; ``label`` and ``query`` are columns. A
  query without its prompt is refused; with ``?prompt=ignore`` all of a query is the completion.
- It asks for the samples of one call; ``?num_generations=`` in the address makes groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from guerdon._serve.errors import RequestError
from guerdon._serve.fields import GROUP_SIZE, group_size, list_of
from guerdon._serve.protocols.protocol import ClientProtocol, rewards_or_refuse
from guerdon._serve.samples import Outcome, Request


def _read(fields: Mapping[str, Any], query: Mapping[str, str]) -> Request:
    queries = _texts(fields, "query")
    if not queries:
        raise RequestError(400, "'query' is empty.")
    prompts: list[Any] | None = None
    if fields.get("prompts"):
        prompts = list_of(fields, "prompts", len(queries))
    labels = list_of(fields, "labels", len(queries)) if fields.get("labels") else [None] * len(queries)
    if query.get("prompt", "ignore") != "ignore":
        raise RequestError(400, "?prompt= in the address: expected ?prompt=ignore, or leave it out.")
    eos_token = query.get("eos_token", "")
    completions = queries if "prompt" in query or prompts is None else list(map(_completion, queries, prompts, count()))
    completions = [one.removesuffix(eos_token) for one in completions]
    columns = {"label": labels, "query": queries}
    size = group_size(fields, query)
    alone = len(queries) == 1 and size in (None, 1)
    return Request(completions, prompts, columns, size, alone=alone, function=query.get("function"))


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    values = list_of(fields, name)
    if not all(isinstance(value, str) for value in values):
        raise RequestError(400, f"{name!r} has to be a list of texts.")
    return values


def _completion(query: str, prompt: object, sample: int) -> str:
    if not isinstance(prompt, str) or not prompt:
        return query
    # A tokenizer may have put a token before the prompt.
    _, found, after = query.partition(prompt)
    if found:
        return after
    end = _end_with_other_blanks(query, prompt)
    if end is None:
        raise RequestError(
            400,
            f"the prompt of sample {sample}, {prompt!a:.60}, is not in its query, {query!a:.60}: a tokenizer may have changed "
            "or cut it. Take one that decodes to the same text, or give ?prompt=ignore to score each query as a whole.",
        )
    return query[end:].lstrip() if prompt[-1].isspace() else query[end:]


def _end_with_other_blanks(query: str, prompt: str) -> int | None:
    """Returns the end of the prompt in a query with other blanks; None: it is not there."""
    words = " ".join(prompt.split())
    start = " ".join(query.split()).find(words)
    if start < 0:
        return None
    left = start + len(words)
    for word in re.finditer(r"\S+", query):
        if left <= len(word[0]):
            return word.start() + left
        left -= len(word[0]) + 1
    return len(query)


def _write(fields: Mapping[str, Any], request: Request, outcomes: Sequence[Outcome]) -> Any:
    rewards = rewards_or_refuse(outcomes)
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


OPENRLHF = ClientProtocol("/openrlhf", _read, _write, options=("function", *GROUP_SIZE, "prompt", "eos_token"))
