"""Nine finished groups in the asynchronous trainer's rollout loop, the first with a reward of 3 s,
eight with 0.5 s.

    python -m pytest benches/python/bench_async_groups.py --benchmark-only

Timed is the loop's own ``_score_loop``, from nine groups in its queue to their last sample in the
trainer's: TRL's loop with the reward function as it is, ours with the same function behind a
dispatcher.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("aiohttp")
pytest.importorskip("requests")

from guerdon import Dispatcher
from tests.integrations.trl.async_grpo import rollout_loops

GROUPS = 9


async def waits(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    await asyncio.sleep(3.0 if completions[0][-1]["content"] == "slow" else 0.5)
    return [float(len(completion[-1]["content"])) for completion in completions]


@pytest.mark.filterwarnings("default")
@pytest.mark.benchmark(group="nine groups, seconds")
@pytest.mark.parametrize("side", ["trl", "guerdon"])
def test_nine_groups(benchmark: Any, side: str) -> None:
    dispatcher = Dispatcher([waits])
    warm = dispatcher.score(prompts=["a"], completions=[[{"role": "assistant", "content": "a"}]])
    assert len(warm) == 1  # the engine runs, as it does from the second group of a training run on

    def fresh() -> tuple[tuple[Any, list[Any]], dict[str, Any]]:
        made = (
            rollout_loops.make_plain_loop([waits])
            if side == "trl"
            else rollout_loops.make_loop(dispatcher, concurrent_groups=16)
        )
        groups = [rollout_loops.group_of(index, ["b" if index else "slow"] * 4) for index in range(GROUPS)]
        return (made, groups), {}

    def run(loop: Any, groups: list[Any]) -> None:
        try:
            assert len(rollout_loops.score(loop, groups)) == GROUPS
        finally:
            rollout_loops.close(loop)

    benchmark.pedantic(run, setup=fresh, rounds=3)
    dispatcher.close()
