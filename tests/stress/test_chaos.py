"""Workers and zygotes killed, stopped and starved at random, amid batches on all lanes.

The seed is printed; ``GUERDON_CHAOS_SEED=<seed> python -m pytest -s tests/stress/test_chaos.py``
replays its schedule.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.stress.chaos import Soak


def _seed(soak: bool) -> int:
    """The same in every short run, so that a red one means a change and not luck; a new one for
    each soak."""
    given = os.environ.get("GUERDON_CHAOS_SEED")
    if given is not None:
        return int(given)
    return random.SystemRandom().randrange(2**32) if soak else 71


@pytest.mark.fault(
    "workers and zygotes are killed, stopped and starved at random for as long as it takes to score 20 000 cells (10⁶ in the soak)",
    sees="every cell has one outcome, true to a serial loop unless its own worker was lost twice or stopped beyond the timeout; memory, "
    "descriptors, threads and processes stay as many",
)
@pytest.mark.parametrize("cells", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_chaos(cells: int, tmp_path: Path) -> None:
    seed = _seed(soak=cells > 20_000)
    print(f"chaos: GUERDON_CHAOS_SEED={seed}")
    toll = Soak(cells, seed, rate=15.0, folder=tmp_path).run()
    print(f"chaos: {toll}")
    assert toll.cells >= cells
    assert toll.harm["kill worker"] > 0
    assert toll.statuses["ok"] > 0.9 * toll.cells
