"""Cost of a sample in batches of a thousand to a million: it must stay flat, so that large batches
pay off.

    python -m pytest benches/python/bench_batch_size.py --benchmark-only

A trivial function, the same 2 KB text for each sample, everything in it from `score` to the arrays.
Target: within 10 % of the cost at 10 000 samples (in a thousand samples the round trips to the
workers weigh more).
"""

from __future__ import annotations

from typing import Any

import pytest

from benches.python import workloads
from guerdon import Dispatcher, reward

SIZES = [1_000, 10_000, 100_000, 1_000_000]
ROUNDS = {1_000: 100, 10_000: 40, 100_000: 10, 1_000_000: 3}
WORKERS = 2
TITLE = "a trivial function on 2 KB, by the size of the batch: µs a sample"

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("lane", ["process", "thread"])
@pytest.mark.parametrize("samples", SIZES)
def test_flat(benchmark: Any, tables: Any, samples: int, lane: str) -> None:
    benchmark.group = TITLE
    if benchmark.disabled:
        samples = min(samples, 10_000)
    texts = ["x" * 2048] * samples
    with Dispatcher([reward(workloads.trivial, lane=lane)], workers=WORKERS) as dispatcher:
        dispatcher.score(completions=texts[:10_000])
        result = benchmark.pedantic(
            lambda: dispatcher.score(completions=texts), rounds=ROUNDS[samples], warmup_rounds=1
        )
    assert float(result.rewards.sum()) == samples
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        cells = {"best": stats.min * 1e6 / samples, "median": stats.median * 1e6 / samples}
        tables.add(TITLE, f"{lane} lane, {samples} samples", cells, "± 10 % over the sizes")
