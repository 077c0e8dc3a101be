"""The bench of Ray nodes runs, once, without timing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")

from tests import test_benches
from tests.ray.nodes import Nodes


@pytest.mark.whole
def test_it_runs(cluster: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    test_benches.run({"bench_ray": ""}, tmp_path)
