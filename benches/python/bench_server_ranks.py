"""Time that two ranks wait for rewards of completions from a server, which rank 0 requests.

    python -m pytest benches/python/bench_server_ranks.py --benchmark-only

16 completions a batch, which end over two seconds, and a judge that takes 0.2 s and one call at a
time from each rank. Nothing can hide the last call.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from benches.python.two_server_ranks import CALL_S
from tests.integrations.trl.torchrun import run_ranks

pytestmark = pytest.mark.timeout(600)

NAMES = {"off": 'pipeline="off"', "overlap": 'pipeline="overlap"'}


def test_waiting_for_rewards(benchmark: Any, tables: Any, tmp_path: Path) -> None:
    done = benchmark.pedantic(lambda: run_ranks(tmp_path, "benches.python.two_server_ranks"), rounds=1)
    assert done.returncode == 0, done.stderr[-4000:]
    waited = json.loads((tmp_path / "rank0.json").read_text())
    for name, label in NAMES.items():
        median = statistics.median(waited[name])
        cells = {"wait a batch, s": median, "last call, s": CALL_S}
        tables.add("rewards of two ranks, completions of a server", label, cells)
