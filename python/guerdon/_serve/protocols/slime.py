"""``POST /slime``: the ``remote_rm`` of slime and miles (``--rm-type remote_rm --rm-url``).

``{"prompt", "response", "label"}`` is answered by a number, which has to be there: a failure is
status 422. Other fields are columns, as ``label`` is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon._serve.fields import refuse_reserved, text, text_or_messages
from guerdon._serve.protocols.protocol import ClientProtocol, rewards_or_refuse
from guerdon._serve.samples import Outcome, Request


def _read(fields: Mapping[str, Any], query: Mapping[str, str]) -> Request:
    completion = text(fields, "response")
    prompt = fields.get("prompt")
    prompts = None if prompt is None else [text_or_messages(prompt, "prompt")]
    columns = {name: [value] for name, value in fields.items() if name not in ("prompt", "response")}
    # Names of the sample itself: they would replace its response and prompt.
    refuse_reserved(columns, "completion", "completions", "prompts")
    columns.setdefault("label", [None])
    return Request([completion], prompts, columns, alone=True, function=query.get("function"))


def _write(fields: Mapping[str, Any], request: Request, outcomes: Sequence[Outcome]) -> Any:
    return rewards_or_refuse(outcomes)[0]


SLIME = ClientProtocol("/slime", _read, _write, takes_groups=False)
