"""skyrl-gym's registry and its environments' protocol, with ours as the entry point.

The loop is written after NovaSky-AI/SkyRL at a9564572 (`skyrl/train/generators/
skyrl_gym_generator.py`, `agent_loop`), which needs a GPU machine's packages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("skyrl_gym", reason="skyrl-gym is not installed: make test-frameworks")

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.envs.registration import deregister

from guerdon import Dispatcher, reward
from guerdon.errors import GuerdonWarning
from guerdon.integrations.skyrl import reward_function
from tests.integrations.frameworks.rewards import dispatcher


@pytest.fixture
def register() -> Iterator[Any]:
    def registered(made: type[Any]) -> None:
        skyrl_gym.register(id="guerdon", entry_point=made)

    yield registered
    deregister("guerdon")


def generate(texts: list[str]) -> list[dict[str, Any]]:
    """An episode each, all at once; steps run in SkyRL's threads."""
    prompt = [{"role": "user", "content": "2 + 2"}]

    async def agent_loop(pool: ThreadPoolExecutor, text: str) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        extras = {"reward_spec": {"label": "4"}, "max_turns": 1}
        environment = skyrl_gym.make("guerdon", env_config={}, extras=extras)
        await loop.run_in_executor(pool, environment.init, prompt)
        output = await loop.run_in_executor(pool, environment.step, text)
        assert output["done"]
        assert output.get("postprocessed_action") is None
        metrics = environment.get_metrics()
        await loop.run_in_executor(pool, environment.close)
        return {"reward": output["reward"], "metrics": metrics}

    async def gather() -> list[dict[str, Any]]:
        with ThreadPoolExecutor(4) as pool:
            return await asyncio.gather(*(agent_loop(pool, text) for text in texts))

    return asyncio.run(gather())


def test_episodes(register: Any) -> None:
    made = reward_function(dispatcher(), failure_value=-1.0)
    assert issubclass(made, BaseTextEnv)
    register(made)
    with pytest.warns(GuerdonWarning, match="its reward becomes -1"):
        outputs = generate(["4", "5", "bad"])
    assert [output["reward"] for output in outputs] == [1.0, 0.0, -1.0]
    assert made.aggregate_metrics([output["metrics"] for output in outputs]) == {}


def test_a_subclass_has_more_turns(register: Any) -> None:
    base = reward_function(Dispatcher([reward(lambda text: float(len(text)), name="length")]), failure_value=0.0)

    class Twice(base):  # type: ignore[misc, valid-type]
        def step(self, action: str) -> Any:
            self.turns += 1
            if self.turns < 2:
                return {"observations": [{"role": "user", "content": "go on"}], "reward": 0.0, "done": False}
            return super().step(action)

    register(Twice)
    environment = skyrl_gym.make("guerdon", env_config={}, extras={})
    environment.init([])
    assert [environment.step("ab")["reward"], environment.step("abc")["reward"]] == [0.0, 3.0]
