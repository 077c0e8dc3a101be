"""OpenRLHF's reward function, by ``--reward.remote_url my_rewards.py`` with ``reward_func`` in it.

OpenRLHF trains on a number from every sample: a sample without a reward ends its run when the batch
is made. Therefore the value of a sample on which a function failed has to be chosen. For an address
as ``--reward.remote_url`` there is ``guerdon serve``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards, check_lengths

__all__ = ["reward_function"]


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
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text, label: float(text == label), name="correct")])
        >>> reward_func = reward_function(dispatcher, failure_value=0.0)
        >>> reward_func(["2 + 2 = 4"], ["2 + 2 = "], ["4"])["rewards"].tolist()
        [1.0]
    """
    scorer = SampleRewards(dispatcher, "OpenRLHF", failure_value)

    def completion_of(query: str, prompt: str | None) -> str:
        # The text behind the prompt, before which a tokenizer may have put a token.
        before, found, completion = query.partition(prompt or "") if prompt else ("", "", query)
        if prompt and not found:
            completion = before
            scorer.warn_once(
                "prompt",
                "a query of OpenRLHF does not contain its prompt (cut off, or decoded to another text), so the whole query is "
                "given as the completion. Further ones are not reported.",
            )
        return completion.removesuffix(eos_token) if eos_token else completion

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str] | None, labels: Sequence[Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        import torch  # OpenRLHF's own contract: the tensor of one sample becomes a number there

        nothing = [None] * len(queries)
        given: Sequence[str | None] = nothing if prompts is None else prompts
        labels = nothing if labels is None else labels
        check_lengths("OpenRLHF", queries=queries, prompts=given, labels=labels)
        rewards = scorer.numbers(
            FrameworkSample(completion_of(query, prompt), prompt, columns={"label": label, "query": query})
            for query, prompt, label in zip(queries, given, labels, strict=True)
        )
        tensor = torch.tensor(rewards, dtype=torch.float32)
        return {"rewards": tensor, "scores": tensor, "extra_logs": {}}

    return reward_func
