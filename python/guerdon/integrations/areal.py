"""AReaL's reward function, ``reward_fn(prompt, completions, prompt_ids, completion_ids, **data)``.

AReaL takes an exception for "no reward": the trajectory is rejected. Its `AsyncRewardWrapper` calls
in a few processes, one sample at a time in each, and makes 0 of what takes longer than 15 s;
`async_reward_function` is what a workflow awaits instead, without either.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import cloudpickle

from guerdon.dispatcher import Dispatcher
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards

__all__ = ["async_reward_function", "reward_function"]


def reward_function(
    dispatcher: Dispatcher, *, failure_value: float | None = None, eos_token: str | None = None
) -> Callable[..., float]:
    """Returns a ``reward_fn`` for AReaL's workflows.

    Columns are the fields of the data, and ``prompt_ids``, beside ``prompt``, ``completion`` and
    ``completion_ids``. It pickles: each of AReaL's reward processes has one engine.

    Args:
        dispatcher: Its functions score single samples, in well under AReaL's 15 s.
        failure_value: The reward of a sample on which a function failed; by default it raises,
            which AReaL tries again three times before it rejects the trajectory.
        eos_token: Removed from the end of completions, which AReaL decodes with it.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text, answer: float(text == answer), name="correct")])
        >>> reward_function(dispatcher)("2 + 2", "4", [1, 2], [3], answer="4")
        1.0
    """
    return _PooledReward(dispatcher, failure_value, eos_token)


def async_reward_function(
    dispatcher: Dispatcher, *, failure_value: float | None = None, eos_token: str | None = None
) -> Callable[..., Awaitable[float]]:
    """The same as a coroutine function, for ``workflow.async_reward_fn``: no process pool, no 15 s,
    no second try; any number of calls run at once.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.
    """
    return _PooledReward(dispatcher, failure_value, eos_token).acall


class _PooledReward:
    """Pickled once: AReaL pickles it with every call, and each process keeps its unpickled copy."""

    def __init__(self, dispatcher: Dispatcher, failure_value: float | None, eos_token: str | None) -> None:
        self._eos_token = eos_token
        self._scorer = SampleRewards(dispatcher, "AReaL", failure_value, raises="its trajectory is rejected")
        self._key = uuid.uuid4().hex
        self._pickled: bytes | None = None

    def __call__(
        self, prompt: Any, completions: Any, prompt_ids: Any = None, completion_ids: Any = None, **data: Any
    ) -> float:
        return self._scorer.wait(self.acall(prompt, completions, prompt_ids, completion_ids, **data))

    async def acall(
        self, prompt: Any, completions: Any, prompt_ids: Any = None, completion_ids: Any = None, **data: Any
    ) -> float:
        if self._eos_token and isinstance(completions, str):
            completions = completions.removesuffix(self._eos_token)
        sample = FrameworkSample(completions, prompt, completion_ids, {**data, "prompt_ids": prompt_ids})
        return await self._scorer.number(sample)

    def __reduce__(self) -> tuple[Callable[..., _PooledReward], tuple[str, bytes]]:
        if self._pickled is None:
            self._pickled = cloudpickle.dumps((self._scorer.dispatcher, self._scorer.failure_value, self._eos_token))
        return _restore, (self._key, self._pickled)


_restored: dict[tuple[int, str], _PooledReward] = {}
"""Objects that this process unpickled; a child that was forked has none of its parent's."""


def _restore(key: str, pickled: bytes) -> _PooledReward:
    found = _restored.get((os.getpid(), key))
    if found is None:
        dispatcher, value, eos_token = cloudpickle.loads(pickled)
        made = _PooledReward(dispatcher, value, eos_token)
        made._key, made._pickled = key, pickled
        found = _restored.setdefault((os.getpid(), key), made)
    return found
