"""One response as verl hands it over: its text, and its columns.

The text is the response up to the end of the attention mask, without special tokens. The columns
``data_source``, ``ground_truth``, ``solution_str`` and ``extra_info`` are what verl's own manager
gives ``compute_score``; every other field is a column by its own name, except names that
`Dispatcher.score` takes for itself. verl's data is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from guerdon._batch.columns import BATCH_OPTIONS, COMPLETION_IDS, ENVIRONMENTS, RECORDERS, TRAINER_STATE
from guerdon._batch.trainer_state import StepAlone
from guerdon._system.units import integer

_RESERVED: Final = frozenset(
    (
        *("prompt", "prompts", "completion", "completions"),
        *(COMPLETION_IDS, ENVIRONMENTS, TRAINER_STATE, *BATCH_OPTIONS, *RECORDERS),
    )
)


@dataclass(frozen=True)
class Response:
    """One response.

    Attributes:
        completion: Its text.
        completion_ids: Its tokens.
        prompt: The prompt's messages, None where verl doesn't pass them on.
        fields: Columns by name.
        step: The steps that the weights had seen which wrote it; None where verl doesn't tell.
    """

    completion: str
    completion_ids: list[int]
    prompt: object
    fields: dict[str, object]
    step: int | None = None

    @property
    def validation(self) -> bool:
        """Returns whether this row is not for training: ``extra_info["split"]``, as verl's scripts
        write it."""
        info = self.fields.get("extra_info")
        split = info.get("split") if isinstance(info, Mapping) else None
        return split is not None and split != "train"


def read(data: Any, tokenizer: Any) -> Response:
    """The response in `data`, a ``DataProto`` of one trajectory; the last of several sequences."""
    item = data[-1:][0]
    responses = item.batch["responses"]
    length = int(item.batch["attention_mask"][-responses.shape[-1] :].sum())
    ids = responses[:length].tolist()
    text = tokenizer.decode(ids, skip_special_tokens=True)
    given = item.non_tensor_batch
    fields = {
        name: _plain(value) for name, value in given.items() if name not in _RESERVED and not name.startswith("__")
    }
    # Fields that verl's own manager adds, under the names that functions written for it expect.
    info = {**(given.get("extra_info") or {}), **(given.get("tool_extra_fields") or {})}
    info["num_turns"] = _plain(given.get("__num_turns__"))
    info["rollout_reward_scores"] = given.get("reward_scores", {})
    fields["extra_info"] = info
    fields["solution_str"] = text
    model = given.get("reward_model")
    if isinstance(model, Mapping) and "ground_truth" in model:
        fields["ground_truth"] = model["ground_truth"]
    return Response(text, ids, _plain(given.get("raw_prompt")), fields, _step(data, given))


def _step(data: Any, given: Mapping[str, Any]) -> int | None:
    """The version of the weights that wrote the end of the response, which rollout servers add to
    it, else the step of verl's trainer."""
    extra = given.get("tool_extra_fields")
    places = (extra if isinstance(extra, Mapping) else {}, given)
    named = (place.get(name) for place in places for name in ("max_global_steps", "global_steps"))
    steps = (integer(_plain(step)) for step in (*named, data.meta_info.get("global_steps")))
    return next((step for step in steps if step is not None and step >= 0), None)


def has_split(data: Any) -> bool:
    """Returns whether verl's data says if this response is for training."""
    infos = data.non_tensor_batch.get("extra_info")
    return infos is not None and isinstance(infos[-1], Mapping) and infos[-1].get("split") is not None


def own_size(data: Any) -> int | None:
    """Returns the number of responses of this prompt, if its row has one."""
    numbers = data.non_tensor_batch.get("__rollout_n__")
    return None if numbers is None else int(numbers[-1])


def columns_of(samples: Sequence[Response]) -> dict[str, Any]:
    """The samples as arguments of `Dispatcher.score`; None where one lacks a field of others."""
    names = dict.fromkeys(name for sample in samples for name in sample.fields)
    columns: dict[str, Any] = {name: [sample.fields.get(name) for sample in samples] for name in names}
    columns["completions"] = [sample.completion for sample in samples]
    columns["completion_ids"] = [sample.completion_ids for sample in samples]
    if any(sample.prompt is not None for sample in samples):
        columns["prompts"] = [sample.prompt for sample in samples]
    return columns


def step_of(samples: Sequence[Response]) -> StepAlone:
    """The step of responses that are scored together: the latest."""
    return StepAlone(max((sample.step for sample in samples if sample.step is not None), default=None))


def _plain(value: Any) -> object:
    """NumPy's scalars and arrays of objects as Python's own, as in a dataset."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and (value.ndim == 0 or value.dtype.kind in "OUS"):
        listed: object = value.tolist()
        return listed
    return value
