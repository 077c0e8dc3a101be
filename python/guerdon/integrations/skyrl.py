"""SkyRL's environment of one turn, whose ``step(action)`` scores the response.

SkyRL trains on a number from every trajectory, and an exception ends its run: the value of a
response on which a function failed has to be chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards

__all__ = ["reward_function"]


def reward_function(dispatcher: Dispatcher, *, failure_value: float) -> type[Any]:
    """Returns an entry point for ``skyrl_gym.register(id="guerdon", entry_point=…)``: the class of
    an environment that is done after one step. A subclass may override ``step`` for more turns.

    Columns are the fields of the data's extras and of their ``reward_spec`` (``ground_truth``),
    beside ``prompt`` and ``completion``. SkyRL calls ``step`` in its threads
    (``environment.skyrl_gym.max_env_workers``): as many responses are scored at once.

    Args:
        dispatcher: Its functions score single samples.
        failure_value: The reward of a response on which a function failed; the step's ``metadata``
            then has ``"guerdon_failed": True``.

    Returns:
        The class; it derives from ``skyrl_gym``'s ``BaseTextEnv`` where that is installed.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text, ground_truth: float(text == ground_truth), name="correct")])
        >>> environment = reward_function(dispatcher, failure_value=0.0)(extras={"reward_spec": {"ground_truth": "4"}})
        >>> environment.step("4")["reward"]
        1.0
    """
    scorer = SampleRewards(dispatcher, "SkyRL", failure_value)
    base = _base()

    class RewardEnvironment(base):  # type: ignore[misc, valid-type] # SkyRL's class has no types
        """One response, scored by Guerdon."""

        def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
            super().__init__()
            self._extras = dict(extras or {})
            self._prompt: Any = None

        def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
            self._prompt = prompt
            return prompt, {}

        def step(self, action: str) -> dict[str, Any]:
            spec = self._extras.get("reward_spec")
            fields = {**self._extras, **(spec if isinstance(spec, Mapping) else {})}
            reward = scorer.wait(scorer.reward(FrameworkSample(action, self._prompt, columns=fields)))
            return {
                "observations": [],
                "reward": float(failure_value) if reward is None else reward,
                "done": True,
                "metadata": {} if reward is not None else {"guerdon_failed": True},
            }

    return RewardEnvironment


def _base() -> type[Any]:
    try:
        from skyrl_gym.envs.base_text_env import BaseTextEnv
    except ModuleNotFoundError:
        return object
    base: type[Any] = BaseTextEnv
    return base
