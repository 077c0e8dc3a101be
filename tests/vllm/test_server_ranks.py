"""Our GRPO trainer on two ranks with a vLLM server, which rank 0 asks: each rank scores its own
completions as they are finished; one launch for all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integrations.trl import reward_functions
from tests.integrations.trl.torchrun import run_ranks
from tests.vllm.server import Server


@pytest.fixture(scope="module")
def ranks(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    done = run_ranks(folder, "tests.vllm.two_server_ranks", server.url, str(server.model), timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def steps(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in report["log"] if "loss" in entry]


@pytest.mark.whole
@pytest.mark.parametrize("name", ["overlap", "all", "split"])
def test_rows_of_both_ranks_have_their_own_rewards(name: str, ranks: list[dict[str, Any]]) -> None:
    for report in (rank[name] for rank in ranks):
        assert "error" not in report
        texts = [reward_functions.text_of(completion) for _, completion in report["table"]]
        assert report["rewards"]["limited"] == pytest.approx(
            [reward_functions.share(text, "aeiou") for text in texts], abs=1e-6
        )
        assert report["rewards"]["place_in_group"] == [float(row % 4) for row in range(len(texts))]
        assert report["rewards"] == ranks[0][name]["rewards"]
        assert report["extra"]["text"] == texts
        assert report["open"] == [0]
        for entry in steps(report):
            # Each completion has the log-probabilities of its own tokens after its own prompt.
            assert entry["sampling/sampling_logp_difference/max"] < 1e-3
            assert entry["guerdon/pipeline/early_frac"] == (0.0 if name == "split" else 1.0)
        assert set(report["extra"]["scored on"]) == {0, 1}
