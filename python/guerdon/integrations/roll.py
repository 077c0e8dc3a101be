"""ROLL's ``compute_rewards(data)`` of a reward worker.

ROLL trains on a number from every response: that of one on which a function failed has to be
chosen. The responses of a ``DataProto`` are scored at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonWarning
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards

__all__ = ["reward_function"]

_FLOAT16_MAX = 65504.0


def reward_function(dispatcher: Dispatcher, *, tokenizer: Any, failure_value: float) -> Callable[[Any], Any]:
    """Returns a function for a reward worker's ``compute_rewards``.

    Columns are the fields of ``data.non_tensor_batch`` (``ground_truth``, ``tag``, …), beside
    ``prompt``, ``completion`` and ``completion_ids``, decoded without special tokens.

    Args:
        dispatcher: Its functions score single samples.
        tokenizer: That of the policy, as ROLL's own workers have it.
        failure_value: The reward of a response on which a function failed.

    Returns:
        ``compute_rewards(data)``: a ``DataProto`` with ``token_level_rewards`` (zeros),
        ``response_level_rewards`` and ``scores``.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.
    """
    scorer = SampleRewards(dispatcher, "ROLL", failure_value)

    def compute_rewards(data: Any) -> Any:
        import torch

        responses = data.batch["responses"]
        texts = tokenizer.batch_decode(responses, skip_special_tokens=True)
        prompts = tokenizer.batch_decode(data.batch["prompts"], skip_special_tokens=True)
        rewards = scorer.numbers(
            FrameworkSample(
                text,
                prompt,
                _ids(row, tokenizer),
                {name: values[index] for name, values in data.non_tensor_batch.items()},
            )
            for index, (text, prompt, row) in enumerate(zip(texts, prompts, responses, strict=True))
        )
        # float16, as in ROLL's workers: batches of several are put together.
        tensor = torch.tensor(_within_float16(rewards), dtype=torch.float16)
        return type(data).from_dict(
            tensors={
                "token_level_rewards": torch.zeros_like(responses, dtype=torch.float16),
                "response_level_rewards": tensor,
                "scores": tensor.clone(),
            }
        )

    return compute_rewards


def _within_float16(rewards: list[float]) -> list[float]:
    """Rewards that float16 would make infinite become the largest that it holds."""
    far = [reward for reward in rewards if abs(reward) > _FLOAT16_MAX]
    if not far:
        return rewards
    warnings.warn(
        f"{len(far)} of {len(rewards)} rewards, {far[0]:g} first, are beyond the {_FLOAT16_MAX:g} of ROLL's float16 and become "
        "that: scale the reward functions down, or their weights.",
        GuerdonWarning,
        stacklevel=3,
    )
    return [max(-_FLOAT16_MAX, min(_FLOAT16_MAX, reward)) for reward in rewards]


def _ids(row: Any, tokenizer: Any) -> list[int]:
    """The tokens of a response, without what fills it up."""
    ids: list[int] = row.tolist()
    return [token for token in ids if token != tokenizer.pad_token_id]
