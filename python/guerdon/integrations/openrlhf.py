"""OpenRLHF's reward function, by ``--reward.remote_url my_rewards.py`` with ``reward_func`` in it.

OpenRLHF trains on a number from every sample: a sample without a reward ends its run when the batch
is made. Therefore the value of a sample on which a function failed has to be chosen. For an address
as ``--reward.remote_url`` there is ``guerdon serve``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonWarning
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards, check_lengths

__all__ = ["reward_function"]

_Texts: TypeAlias = "Sequence[str | None] | None"


def reward_function(
    dispatcher: Dispatcher, *, failure_value: float, eos_token: str | None = None
) -> Callable[..., dict[str, Any]]:
    """Returns a ``reward_func`` for OpenRLHF; calls from its threads are scored together.

    Columns are ``label`` and ``query`` (prompt and response as one text, with special tokens),
    beside ``prompt`` and ``completion``: what follows the prompt in the query.

    Args:
        dispatcher: Its functions score single samples.
        failure_value: The reward of a sample on which a function failed.
        eos_token: Removed from the end of completions, which OpenRLHF decodes with it.

    Returns:
        ``reward_func(queries, prompts, labels, **kwargs)``, which returns ``rewards`` and
        ``scores``, a tensor each, and ``extra_logs``.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is no finite number.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text, label: float(text == label), name="correct")])
        >>> reward_func = reward_function(dispatcher, failure_value=0.0)
        >>> reward_func(["2 + 2 = 4"], ["2 + 2 = "], ["4"])["rewards"].tolist()
        [1.0]
    """
    rewards = _Rewards(dispatcher, failure_value, eos_token)

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str] | None, labels: Sequence[Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        import torch  # OpenRLHF's own contract: the tensor of one sample becomes a number there

        tensor = torch.tensor(rewards.of(queries, prompts, labels), dtype=torch.float32)
        return {"rewards": tensor, "scores": tensor, "extra_logs": {}}

    return reward_func


class _Rewards:
    """The rewards of queries, failures included."""

    def __init__(self, dispatcher: Dispatcher, failure_value: float, eos_token: str | None) -> None:
        self._eos_token = eos_token
        self._scorer = SampleRewards(dispatcher, "OpenRLHF", failure_value)
        self._split_reported = False

    def of(self, queries: Sequence[str], prompts: _Texts, labels: Sequence[Any] | None) -> list[float]:
        prompts = [None] * len(queries) if prompts is None else prompts
        labels = [None] * len(queries) if labels is None else labels
        check_lengths("OpenRLHF", queries=queries, prompts=prompts, labels=labels)
        return self._scorer.numbers(
            FrameworkSample(self._completion(query, prompt), prompt, columns={"label": label, "query": query})
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        )

    def _completion(self, query: str, prompt: str | None) -> str:
        # The text behind the prompt, before which a tokenizer may have put a token.
        before, found, completion = query.partition(prompt or "") if prompt else ("", "", query)
        if prompt and not found:
            completion = before
            if not self._split_reported:
                self._split_reported = True
                warnings.warn(
                    "a query of OpenRLHF does not contain its prompt (cut off, or decoded to another text), so the whole "
                    "query is given as the completion. Further ones are not reported.",
                    GuerdonWarning,
                    stacklevel=2,
                )
        return completion.removesuffix(self._eos_token) if self._eos_token else completion
