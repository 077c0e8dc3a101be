"""A reward model called on many samples at once, compared with one call a sample.

    python -m pytest benches/python/bench_batching.py --benchmark-only

512 completions, groups of 8, a small torch model in one worker (`reward_model.py`), everything in
it from `score` to the arrays. One bad sample in 512 is separated from the rest of its call by
splitting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benches.python.reward_model import OneByOne, RewardModel
from guerdon import Dispatcher, reward

SAMPLES, GROUP = 512, 8
SIZES = (1, 8, 32, 128)
TITLE = "a small reward model, 512 samples: ms a batch"

pytestmark = pytest.mark.timeout(600)


class Fussy(RewardModel):
    """Can't score one of the samples."""

    def score(self, texts: list[str]) -> list[float]:
        if any(text.startswith("bad") for text in texts):
            raise ValueError("a bad sample")
        return super().score(texts)


def function_of(size: int) -> Any:
    return reward(OneByOne(), name="one") if size == 1 else reward(RewardModel(), name="many", batch_size=size)


@pytest.mark.parametrize("size", [*SIZES, -32])
def test_batching(benchmark: Any, tables: Any, size: int) -> None:
    benchmark.group = TITLE
    samples = SAMPLES if not benchmark.disabled else 16
    bad = size < 0
    texts = [f"{sample} " * 30 for sample in range(samples)]
    if bad:
        texts[samples // 2] = "bad"
    function = reward(Fussy(), name="fussy", batch_size=-size) if bad else function_of(size)
    with Dispatcher([function], workers=1) as dispatcher:
        result = benchmark.pedantic(
            lambda: dispatcher.score(completions=texts, num_generations=GROUP), rounds=5, warmup_rounds=1
        )
    assert np.isfinite(result.rewards).sum() == samples - bad
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        name = "one bad sample, calls of 32" if bad else "called for each" if size == 1 else f"calls of {size}"
        tables.add(TITLE, name, {"best": stats.min * 1e3, "median": stats.median * 1e3})
