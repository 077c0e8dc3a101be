"""The reward of a v1 `Task` of verifiers, 0.4 or later.

A task takes an exception for "no reward": the trace has an error, and trainers leave it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards

__all__ = ["reward_function"]


def reward_function(
    dispatcher: Dispatcher, *, failure_value: float | None = None, name: str = "guerdon"
) -> Callable[..., Awaitable[float]]:
    """Returns a reward for a v1 task: ``score = vf.reward(reward_function(dispatcher))`` in the
    task's class, or ``rewards = {"score": {"fn": "my_rewards:score"}}`` in its configuration.

    Columns are the fields of the task's data, and ``trace_info``, the trace's ``info``. The
    completion is the messages of the trace's last branch from the first reply on.

    Args:
        dispatcher: Its functions score single samples.
        failure_value: The reward of a sample on which a function failed; by default it raises, and
            the trace has an error.
        name: Of the reward in the trace.

    Returns:
        ``async reward(task, trace)``.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.
    """
    return _TaskReward(SampleRewards(dispatcher, "verifiers", failure_value, raises="its trace has an error"), name)


class _TaskReward:
    """No function, so that an attribute of a class is not bound; verifiers marks it with
    attributes."""

    def __init__(self, scorer: SampleRewards, name: str) -> None:
        self._scorer = scorer
        self.__name__ = name

    async def __call__(self, task: Any, trace: Any) -> float:
        return await self._scorer.number(_read(task, trace))


def _read(task: Any, trace: Any) -> FrameworkSample:
    messages = [_message(message) for message in trace.messages]
    # The model's text, not the assistant's messages of an example in the prompt.
    own = {id(message) for message in trace.assistant_messages}
    first = next((n for n, message in enumerate(trace.messages) if id(message) in own), len(messages))
    fields = {name: getattr(task, name) for name in type(task).model_fields}
    # Fields of data whose class is not at hand, as in an environment server.
    fields.update(getattr(task, "model_extra", None) or {})
    return FrameworkSample(
        completion=messages[first:] or trace.last_reply,
        prompt=messages[:first],
        columns={**fields, "trace_info": dict(trace.info)},
    )


def _message(message: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = message.model_dump(exclude_none=True)
    return dumped
