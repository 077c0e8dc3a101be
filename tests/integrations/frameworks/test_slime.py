"""slime's and miles' custom reward, called as they call it.

Written after THUDM/slime at 624b824a (`slime/rollout/rm_hub/__init__.py`, `async_rm` and
`batched_async_rm`; `slime/rollout/sglang_rollout.py`, `generate_and_rm`; `slime/ray/rollout.py`,
`_post_process_rewards` and `_convert_samples_to_train_data`) and radixark/miles at 31f1ca96
(`miles/rollout/rm_hub/__init__.py`, `miles/ray/rollout/train_data_conversion.py`). Both are
installed from a checkout only, with SGLang and Megatron.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from guerdon.errors import GuerdonWarning
from guerdon.integrations import miles, slime
from tests.integrations.frameworks.rewards import dispatcher

torch = pytest.importorskip("torch")

BOTH = pytest.mark.parametrize("module", [slime, miles])
ARGS = SimpleNamespace(reward_key=None, n_samples_per_prompt=4)


@dataclass
class Row:
    """The attributes of slime's `Sample` with a response."""

    response: str
    label: str = "4"
    prompt: Any = "2 + 2"
    tokens: list[int] = field(default_factory=lambda: [1, 2, 3, 4])
    response_length: int = 2
    metadata: dict[str, Any] | None = field(default_factory=dict)
    reward: Any = None
    remove_sample: bool = False
    loss_mask: list[int] | None = None


async def one_by_one(rm: Any, rows: list[Row]) -> None:
    """Each sample's reward is awaited by a task of its own, when it was generated."""

    async def generate_and_reward(row: Row) -> None:
        row.reward = await rm(ARGS, row)

    await asyncio.gather(*(asyncio.create_task(generate_and_reward(row)) for row in rows))


async def whole_group(rm: Any, rows: list[Row]) -> None:
    """slime calls it so with --group-rm, and for several samples of one execution."""
    for row, value in zip(rows, await rm(ARGS, rows), strict=True):
        row.reward = value


def train_data(rows: list[Row]) -> tuple[list[float], list[list[int]]]:
    """Rewards less their group's mean, and loss masks."""
    raw = torch.tensor([row.reward for row in rows], dtype=torch.float)
    masks = [[0 if row.remove_sample else 1] * row.response_length for row in rows]
    return (raw - raw.mean()).tolist(), masks


@BOTH
def test_a_sample_without_a_reward_is_not_trained_on(module: Any) -> None:
    rm = module.reward_function(dispatcher(), failure_value=0.5)
    rows = [Row("4"), Row("bad"), Row("5", metadata=None), Row("7", label="7")]
    with pytest.warns(GuerdonWarning, match=f"a sample of {module.__name__.rpartition('.')[2]} has no reward"):
        asyncio.run(one_by_one(rm, rows))
    assert [row.reward for row in rows] == [1.0, 0.5, 0.0, 1.0]
    assert train_data(rows)[1] == [[1, 1], [0, 0], [1, 1], [1, 1]]


@BOTH
def test_in_a_whole_group_the_baseline_stays_as_it_is(module: Any) -> None:
    rm = module.reward_function(dispatcher(), failure_value=-5.0)
    rows = [Row("4"), Row("bad"), Row("5"), Row("5")]
    with pytest.warns(GuerdonWarning):
        asyncio.run(whole_group(rm, rows))
    advantages, masks = train_data(rows)
    assert advantages == pytest.approx([2 / 3, 0.0, -1 / 3, -1 / 3])
    assert masks[1] == [0, 0]
    rows = [Row("bad"), Row("bad")]
    asyncio.run(whole_group(rm, rows))
    assert [row.reward for row in rows] == [-5.0, -5.0]
    assert all(row.remove_sample for row in rows)


def test_functions_get_the_columns_they_name() -> None:
    def look(prompt: Any, completion_ids: Any, rm_type: str, metadata: dict[str, Any], label: str) -> dict[str, Any]:
        assert (prompt, list(completion_ids), label) == ("2 + 2", [3, 4], "4")
        assert (rm_type, metadata) == ("math", {"rm_type": "math"})
        return {"score": 1.0}

    rm = slime.reward_function(Dispatcher([reward(look, lane="thread")]), failure_value=0.0)
    assert asyncio.run(rm(ARGS, Row("4", metadata={"rm_type": "math"}), evaluation=True)) == 1.0
