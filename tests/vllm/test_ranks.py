"""The asynchronous trainer on two ranks, with a checkpoint and a run that goes on from it; one
launch for all.

`make stress-trainers` runs this.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.integrations.trl.torchrun import run_ranks
from tests.vllm.server import Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def ranks(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Returns what the first run tells and what the resumed one does, by rank."""
    folder = tmp_path_factory.mktemp("ranks")
    done = run_ranks(folder, "tests.vllm.two_ranks", server.url, str(server.model), timeout=1000)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_both_ranks_train_the_same_policy(ranks: list[list[dict[str, Any]]]) -> None:
    for first, second in zip(*ranks, strict=True):
        assert first["ends with"] == second["ends with"]
        assert first["ends with"] != first["begins with"]
        assert first["adapters"] == second["adapters"]
    for run in ranks[0]:  # only the first rank scores
        assert all(math.isfinite(entry["loss"]) for entry in run["log"])
        assert all("rewards/length" in entry and "rewards/rank" in entry for entry in run["log"])
        # The entry is that during which groups were scored, maybe one before that of their step.
        failed = "guerdon/rank/failed_frac"
        assert {entry[failed] for entry in run["log"] if failed in entry} == {0.0}


def test_a_run_goes_on_from_its_checkpoint(ranks: list[list[dict[str, Any]]]) -> None:
    """The adapter is kept, under names unknown to the server, and versions count on."""
    for first, resumed in ranks:
        assert [entry["step"] for entry in first["log"]] == [1, 2]
        assert [entry["step"] for entry in resumed["log"]] == [1, 2, 3, 4]
        assert resumed["begins with"] == first["ends with"]
        assert resumed["adapters"] != first["adapters"]
    first, resumed = ranks[0]
    # One before the first step and one after each; the first that is published after the checkpoint
    # is the next.
    assert first["version"] == 3
    assert resumed["version"] == 6
