"""slime's custom reward, ``async rm(args, sample)``, by ``--custom-rm-path my_rewards.rm``.

slime trains on a number from every sample, but leaves samples with ``remove_sample`` out of the
loss: a sample without a reward gets both. It calls with a list where it scores whole groups
(``--group-rm``) or several samples of one prompt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards

__all__ = ["reward_function"]


def reward_function(
    dispatcher: Dispatcher, *, failure_value: float, framework: str = "slime"
) -> Callable[..., Awaitable[Any]]:
    """Returns a custom reward for slime.

    Columns are ``label``, ``metadata`` and each field of ``metadata``, beside ``prompt``,
    ``completion`` and ``completion_ids``.

    Args:
        dispatcher: Its functions score single samples.
        failure_value: The number of a sample without a reward. It is not trained on
            (``remove_sample``), but counts in the baseline of its group. In a list the mean of the
            others is taken instead, which leaves the baseline as it is, and this where all failed.
        framework: Its name in messages.

    Returns:
        ``async rm(args, sample_or_samples, **kwargs)``: a number, or a list of them.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.

    Examples:
        >>> import asyncio, types
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text, label: float(text == label), name="correct")])
        >>> rm = reward_function(dispatcher, failure_value=0.0)
        >>> sample = types.SimpleNamespace(prompt="2 + 2", response="4", label="4", metadata={})
        >>> asyncio.run(rm(None, sample))
        1.0
    """
    becomes = "it is left out of the loss (remove_sample), and counts as {value:g} in its group"
    scorer = SampleRewards(dispatcher, framework, failure_value, becomes=becomes)
    value = float(failure_value)

    async def rm(args: Any, sample: Any, **kwargs: Any) -> Any:
        if isinstance(sample, (list, tuple)):
            rewards = await scorer.rewards(_read(one) for one in sample)
            others = [reward for reward in rewards if reward is not None]
            instead = sum(others) / len(others) if others else value
            return [_left_out(one, instead) if r is None else r for one, r in zip(sample, rewards, strict=True)]
        reward = await scorer.reward(_read(sample))
        return _left_out(sample, value) if reward is None else reward

    return rm


def _read(sample: Any) -> FrameworkSample:
    metadata = getattr(sample, "metadata", None)
    fields = dict(metadata) if isinstance(metadata, Mapping) else {}
    length, tokens = getattr(sample, "response_length", 0), getattr(sample, "tokens", None)
    return FrameworkSample(
        completion=sample.response,
        prompt=sample.prompt,
        completion_ids=list(tokens[-length:]) if tokens and length else None,
        columns={**fields, "label": sample.label, "metadata": fields},
    )


def _left_out(sample: Any, value: float) -> float:
    sample.remove_sample = True
    return value
