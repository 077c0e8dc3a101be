"""NeMo-RL's ``step(message_log_batch, metadata)`` of an environment of one turn.

NeMo-RL trains on a number from every sample: that of one on which a function failed has to be
chosen. A whole batch is scored at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from guerdon.dispatcher import Dispatcher
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards, check_lengths

__all__ = ["EnvironmentReturn", "reward_function"]


class EnvironmentReturn(NamedTuple):
    """Return value of a step: NeMo-RL's own fields, in its order.

    Attributes:
        observations: One message a sample.
        metadata: As it came.
        next_stop_strings: None for each sample.
        rewards: Tensor ``[B]``, float32.
        terminateds: Tensor ``[B]``, all 1.
        answers: The responses' texts where they are asked for.
    """

    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[Any]
    rewards: Any
    terminateds: Any
    answers: list[str | None] | None


def reward_function(
    dispatcher: Dispatcher, *, failure_value: float, observation: str = ""
) -> Callable[..., EnvironmentReturn]:
    """Returns a function for an environment's ``step``: make it in the ``__init__`` of a Ray actor
    that derives from ``EnvironmentInterface``.

    Columns are the fields of each sample's metadata (``ground_truth``), and ``metadata`` itself,
    beside ``prompt`` and ``completion``: the messages up to the first of the assistant's, and from
    it on.

    Args:
        dispatcher: Its functions score single samples.
        failure_value: The reward of a sample on which a function failed.
        observation: The text that follows each response, as NeMo-RL adds one to the log.

    Returns:
        ``step(message_log_batch, metadata, return_extracted_answer=False)``.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text, ground_truth: float(text == ground_truth), name="correct")])
        >>> step = reward_function(dispatcher, failure_value=0.0)
        >>> log = [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]
        >>> step([log], [{"ground_truth": "4"}]).rewards.tolist()
        [1.0]
    """
    scorer = SampleRewards(dispatcher, "NeMo-RL", failure_value)

    def step(
        message_log_batch: Sequence[Sequence[Mapping[str, Any]]],
        metadata: Sequence[Any],
        return_extracted_answer: bool = False,
    ) -> EnvironmentReturn:
        import torch

        check_lengths("NeMo-RL", message_log_batch=message_log_batch, metadata=metadata)
        rewards = scorer.numbers(map(_read, message_log_batch, metadata))
        texts = [str(log[-1]["content"]) if log else None for log in message_log_batch]
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": observation} for _ in rewards],
            metadata=list(metadata),
            next_stop_strings=[None] * len(rewards),
            rewards=torch.tensor(rewards, dtype=torch.float32),
            terminateds=torch.ones(len(rewards)),
            answers=list(texts) if return_extracted_answer else None,
        )

    return step


def _read(log: Sequence[Mapping[str, Any]], metadata: Any) -> FrameworkSample:
    messages = [{"role": message["role"], "content": message["content"]} for message in log]
    first = next((n for n, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    fields = dict(metadata) if isinstance(metadata, Mapping) else {}
    return FrameworkSample(messages[first:], messages[:first], columns={**fields, "metadata": fields})
