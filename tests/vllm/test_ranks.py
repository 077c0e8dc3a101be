"""Trainers on two ranks with a vLLM server, one launch for each.

`make stress-trainers` runs the asynchronous one, with a checkpoint and a run that goes on from it.
Rank 0 of the synchronous one asks the server, and each rank scores its own completions as they are
finished.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.integrations.trl import reward_functions
from tests.integrations.trl.torchrun import run_ranks
from tests.vllm.server import Server


def reports_of(module: str, server: Server, factory: pytest.TempPathFactory, timeout: int) -> list[Any]:
    """Returns the reports of both ranks."""
    folder = factory.mktemp("ranks")
    done = run_ranks(folder, module, server.url, str(server.model), timeout=timeout)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def asynchronous(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The reports of the first run and of the resumed one, by rank."""
    return reports_of("tests.vllm.two_ranks", server, tmp_path_factory, 1000)


@pytest.fixture(scope="module")
def synchronous(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return reports_of("tests.vllm.two_server_ranks", server, tmp_path_factory, 500)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_both_ranks_train_the_same_policy(asynchronous: list[list[dict[str, Any]]]) -> None:
    for first, second in zip(*asynchronous, strict=True):
        assert first["ends with"] == second["ends with"]
        assert first["ends with"] != first["begins with"]
        assert first["adapters"] == second["adapters"]
    for run in asynchronous[0]:  # only the first rank scores
        assert all(math.isfinite(entry["loss"]) for entry in run["log"])
        assert all("rewards/length" in entry and "rewards/rank" in entry for entry in run["log"])
        # The entry is that during which groups were scored, maybe one before that of their step.
        failed = "guerdon/rank/failed_frac"
        assert {entry[failed] for entry in run["log"] if failed in entry} == {0.0}


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_run_goes_on_from_its_checkpoint(asynchronous: list[list[dict[str, Any]]]) -> None:
    """The adapter is kept, under names unknown to the server, and versions count on."""
    for first, resumed in asynchronous:
        assert [entry["step"] for entry in first["log"]] == [1, 2]
        assert [entry["step"] for entry in resumed["log"]] == [1, 2, 3, 4]
        assert resumed["begins with"] == first["ends with"]
        assert resumed["adapters"] != first["adapters"]
    first, resumed = asynchronous[0]
    # One before the first step and one after each; the first that is published after the checkpoint
    # is the next.
    assert first["version"] == 3
    assert resumed["version"] == 6


@pytest.mark.whole
@pytest.mark.parametrize("name", ["overlap", "all", "split"])
def test_rows_of_both_ranks_have_their_own_rewards(name: str, synchronous: list[dict[str, Any]]) -> None:
    for report in (rank[name] for rank in synchronous):
        assert "error" not in report
        texts = [reward_functions.text_of(completion) for _, completion in report["table"]]
        assert report["rewards"]["limited"] == pytest.approx(
            [reward_functions.share(text, "aeiou") for text in texts], abs=1e-6
        )
        assert report["rewards"]["place_in_group"] == [float(row % 4) for row in range(len(texts))]
        assert report["rewards"] == synchronous[0][name]["rewards"]
        assert report["extra"]["text"] == texts
        assert report["open"] == [0]
        for entry in [entry for entry in report["log"] if "loss" in entry]:
            # Each completion has the log-probabilities of its own tokens after its own prompt.
            assert entry["sampling/sampling_logp_difference/max"] < 1e-3
            assert entry["guerdon/pipeline/early_frac"] == (0.0 if name == "split" else 1.0)
        assert set(report["extra"]["scored on"]) == {0, 1}
