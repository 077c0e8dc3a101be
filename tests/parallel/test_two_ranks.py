"""Pipelines where the model is sharded: on two ranks as under DDP. One launch for all runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.trl.torchrun import run_ranks
from tests.parallel.two_ranks import KINDS, MODES

pytestmark = pytest.mark.timeout(600)  # two processes import all that training needs

Reports = list[dict[str, Any]]
# ZeRO-3 shards all that there is to shard.
CASES = [pytest.param(kind, marks=() if kind in ("ddp", "zero3") else pytest.mark.whole) for kind in KINDS]
WRAPPED = {
    "ddp": "DistributedDataParallel",
    "fsdp2": "FSDPQwen2ForCausalLM",
    "zero2": "DeepSpeedEngine",
    "zero3": "DeepSpeedEngine",
}
# Of docs/compatibility.md
ROWS = {
    "fsdp2": ("FSDP2", ("torch", "trl", "accelerate")),
    "zero2": ("DeepSpeed ZeRO-2", ("deepspeed", "torch", "trl")),
    "zero3": ("DeepSpeed ZeRO-3", ("deepspeed", "torch", "trl")),
}


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The reports of both ranks, on each kind that a selected test is about."""
    selected = {item.callspec.params.get("kind") for item in request.session.items if hasattr(item, "callspec")}
    kinds = [kind for kind in KINDS if kind in selected | {"ddp"}]
    monkeypatch = pytest.MonkeyPatch()
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    folder: Path = tmp_path_factory.mktemp("ranks")
    done = run_ranks(folder, "tests.parallel.two_ranks", ",".join(kinds))
    monkeypatch.undo()
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def steps(values: list[float]) -> list[float]:
    """The maximum of each step, of two micro-steps, whose rows are those scored first."""
    return [max(values[at : at + 2]) for at in range(0, len(values), 2)]


def assert_same_log(ours: list[dict[str, Any]], expected: list[dict[str, Any]], pipeline: Any) -> None:
    """Equal but for rounding, and for means over micro-steps where these have other rows."""
    assert len(ours) == len(expected)
    pieces = ("entropy", "clip_ratio") if pipeline != "one_step" else ()
    for mine, theirs in zip(ours, expected, strict=True):
        assert set(mine) == set(theirs)
        for key, value in theirs.items():
            if not key.startswith(pieces):
                assert mine[key] == pytest.approx(value, rel=1e-3, abs=1e-5), key


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CASES[1:])
def test_row_38_a_sharded_model_is_trained_as_under_ddp(
    kind: str, mode: str, ranks: Reports, compatibility: Any
) -> None:
    """Prompts, rows and rewards are equal; gradients, ratios and weights but for rounding."""
    name, packages = ROWS[kind]
    compatibility("parallel", name, mode, "works", packages)
    for rank in ranks:
        ours, ddp = rank[kind][mode], rank["ddp"][mode]
        assert ours["wrapped"] == WRAPPED[kind]
        for part in ("generated", "seen", "rewards", "early"):
            assert ours[part] == ddp[part], part
        assert ours["advantages"] == pytest.approx(ddp["advantages"], abs=1e-5)
        assert steps(ours["ratios"]) == pytest.approx(steps(ddp["ratios"]), rel=1e-3, abs=1e-5)
        assert_same_log(ours["log"], ddp["log"], MODES[mode])
        assert ours["open"] == 0
    assert ranks[0][kind][mode]["weights"] == pytest.approx(ranks[0]["ddp"][mode]["weights"], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", CASES)
def test_ranks_call_the_same_collectives_in_the_same_order(kind: str, ranks: Reports) -> None:
    """Ranks score their groups in different orders."""
    for mode in MODES:
        calls = [rank[kind][mode]["collectives"] for rank in ranks]
        assert calls[0] == calls[1]
        assert any(call.startswith("all_gather") for call in calls[0])


@pytest.mark.parametrize("kind", CASES)
def test_a_ratio_is_that_of_the_policy_that_wrote_the_batch(kind: str, ranks: Reports) -> None:
    """On-policy all is as without a pipeline; with look-ahead the first batch is."""
    for rank in ranks:
        plain = rank[kind]["off"]
        assert plain["ratios"] == []
        assert_same_log(rank[kind]["overlap and mini_batch"]["log"], plain["log"], None)
        for mode in ("one_step", "all"):
            ours = rank[kind][mode]
            assert_same_log(ours["log"][:1], plain["log"][:1], None)
            fresh, stale = steps(ours["ratios"])
            assert fresh < 1e-6 < 1e-2 < stale
        for mode in ("overlap and mini_batch", "all"):
            assert max(rank[kind][mode]["early"][:2]) > 0
