"""SkyRL's environment, NeMo-RL's ``step`` and ROLL's ``compute_rewards``, called as they are there.

NeMo-RL's caller is written after NVIDIA-NeMo/RL at 7ea279ab (`nemo_rl/experience/rollouts.py`,
`calculate_rewards` and `run_multi_turn_rollout`), ROLL's after alibaba/ROLL at 8eb27cc2
(`roll/distributed/scheduler/user_defined_rollout_loop.py`, `_generate_and_reward_impl`;
`roll/distributed/scheduler/protocol.py`, `DataProto`): neither installs from PyPI.
tests/frameworks/test_skyrl.py has SkyRL's with skyrl-gym installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, reward
from guerdon.errors import DataError, GuerdonWarning
from guerdon.integrations import nemo_rl, roll, skyrl
from tests.integrations.frameworks.rewards import dispatcher

torch = pytest.importorskip("torch")


def test_skyrls_environment() -> None:
    made = skyrl.reward_function(dispatcher(), failure_value=-1.0)

    def episode(text: str) -> Any:
        environment = made(env_config={}, extras={"reward_spec": {"label": "4"}, "max_turns": 1})
        prompt, _ = environment.init([{"role": "user", "content": "2 + 2"}])
        assert prompt == [{"role": "user", "content": "2 + 2"}]
        return environment.step(text)

    assert episode("4") == {"observations": [], "reward": 1.0, "done": True, "metadata": {}}
    with pytest.warns(GuerdonWarning, match="its reward becomes -1"):
        failed = episode("bad")
    assert (failed["reward"], failed["metadata"]) == (-1.0, {"guerdon_failed": True})


def log(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": text}]


def test_nemo_rls_rollout() -> None:
    """Results are unpacked by position, put together by sample, and added to what was there."""
    step = nemo_rl.reward_function(dispatcher(), failure_value=-1.0, observation="done")
    totals = torch.zeros(4)
    active = torch.arange(4)
    with pytest.warns(GuerdonWarning, match="NeMo-RL has no reward"):
        result = step([log(text) for text in ("4", "5", "bad", "4")], [{"label": "4"}] * 4)
    observations, metadata, stops, rewards, terminateds, answers = result
    totals[active] += torch.stack([rewards[index] for index in range(4)])
    assert totals.tolist() == [1.0, 0.0, -1.0, 1.0]
    assert torch.tensor([terminateds[index] for index in range(4)]).bool().all()
    assert observations == [{"role": "environment", "content": "done"}] * 4
    assert metadata == [{"label": "4"}] * 4
    assert stops == [None] * 4
    assert answers is None
    assert step([log("4")], [{"label": "4"}], True).answers == ["4"]


def test_nemo_rl_arguments_reach_the_functions() -> None:
    def look(prompt: Any, completion: Any, label: str, metadata: dict[str, Any]) -> float:
        assert [message["content"] for message in prompt] == ["2 + 2"]
        assert [message["content"] for message in completion] == ["3", "wrong", "4"]
        assert metadata == {"label": label, 5: "a name that is no text"}
        return 1.0

    turns = [*log("3"), {"role": "environment", "content": "wrong"}, {"role": "assistant", "content": "4"}]
    step = nemo_rl.reward_function(Dispatcher([reward(look, lane="thread")]), failure_value=0.0)
    assert step([turns], [{"label": "4", 5: "a name that is no text"}]).rewards.tolist() == [1.0]
    with pytest.raises(DataError, match="message_log_batch 2, metadata 1"):
        step([log("4"), log("5")], [{"label": "4"}])


class DataProto:
    """The part of ROLL's class that a reward worker touches."""

    def __init__(self, batch: dict[str, Any], non_tensor_batch: dict[str, Any]) -> None:
        self.batch, self.non_tensor_batch = batch, non_tensor_batch

    @classmethod
    def from_dict(cls, tensors: dict[str, Any], non_tensors: dict[str, Any] | None = None) -> DataProto:
        assert len({len(tensor) for tensor in tensors.values()}) == 1
        return cls(tensors, non_tensors or {})

    def union(self, other: DataProto) -> DataProto:
        assert not set(self.batch) & set(other.batch)
        self.batch.update(other.batch)
        return self


class Tokenizer:
    pad_token_id = 0

    def batch_decode(self, rows: Any, skip_special_tokens: bool) -> list[str]:
        assert skip_special_tokens
        return ["".join(chr(token) for token in row if token) for row in rows.tolist()]


def tokens(*texts: str) -> Any:
    return torch.tensor([[*map(ord, text), *[0] * (4 - len(text))] for text in texts])


def test_rolls_reward_worker() -> None:
    compute = roll.reward_function(dispatcher(), tokenizer=Tokenizer(), failure_value=-1.0)
    data = DataProto(
        {"prompts": tokens("2+2", "2+2", "2+2"), "responses": tokens("4", "5", "bad")},
        {"label": np.array(["4", "4", "4"], dtype=object), "tag": np.array(["a", "b", "c"], dtype=object)},
    )
    with pytest.warns(GuerdonWarning, match="ROLL has no reward"):
        rewards = compute(data)
    data.union(rewards)
    assert data.batch["response_level_rewards"].tolist() == [1.0, 0.0, -1.0]
    assert data.batch["scores"].tolist() == [1.0, 0.0, -1.0]
    assert data.batch["token_level_rewards"].shape == data.batch["responses"].shape
    assert {tensor.dtype for tensor in rewards.batch.values()} == {torch.float16}


def test_roll_arguments_reach_the_functions() -> None:
    def look(prompt: str, completion: str, completion_ids: list[int], label: str) -> float:
        assert (prompt, completion, list(completion_ids), label) == ("2+2", "ab", [97, 98], "4")
        return 1.0

    compute = roll.reward_function(Dispatcher([reward(look, lane="thread")]), tokenizer=Tokenizer(), failure_value=0.0)
    data = DataProto({"prompts": tokens("2+2"), "responses": tokens("ab")}, {"label": np.array(["4"], dtype=object)})
    assert compute(data).batch["scores"].tolist() == [1.0]


def test_rewards_beyond_rolls_float16() -> None:
    def far(text: str) -> float:
        return 1e6 if text == "a" else -1e6

    compute = roll.reward_function(Dispatcher([reward(far, lane="thread")]), tokenizer=Tokenizer(), failure_value=0.0)
    with pytest.warns(GuerdonWarning, match="2 of 2 rewards, 1e\\+06 first, are beyond the 65504"):
        rewards = compute(DataProto({"prompts": tokens("2", "2"), "responses": tokens("a", "b")}, {}))
    assert rewards.batch["scores"].tolist() == [65504.0, -65504.0]
