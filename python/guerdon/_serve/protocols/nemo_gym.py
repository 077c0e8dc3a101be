"""``POST /verify``: NeMo-Gym's resources servers.

- ``{"responses_create_params", "response", …}`` comes back with ``reward``, as NeMo-Gym's own
  servers answer; other fields are columns.
- ``reward`` has to be a number there: a failure is a mask, ``mask_sample`` (also in
  ``instance_config``, where NeMo-RL looks for it), with ``failure_reason`` and the ``failure_kind``
  that metrics are grouped by; the number under a mask means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon._serve.errors import RequestError
from guerdon._serve.fields import refuse_reserved
from guerdon._serve.protocols.protocol import ClientProtocol, describe
from guerdon._serve.protocols.responses_api import completion_of, prompt_of
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
    prompt = prompt_of(parameters)
    completion = completion_of(response, as_text=isinstance(prompt, str))
    return Request([completion], [prompt], columns, alone=True, function=query.get("function"))


def _write(fields: Mapping[str, Any], request: Request, outcomes: Sequence[Outcome]) -> Any:
    (one,) = outcomes
    if one.reward is not None:
        return {**fields, "reward": one.reward, _MASK: False, "failure_kind": None, "failure_reason": None}
    config = {**(fields.get("instance_config") or {}), _MASK: True}
    why = {"failure_kind": f"guerdon:{one.status.label}", "failure_reason": describe(one)}
    return {**fields, "reward": 0.0, _MASK: True, **why, "instance_config": config}


NEMO_GYM = ClientProtocol("/verify", _read, _write, takes_groups=False)
