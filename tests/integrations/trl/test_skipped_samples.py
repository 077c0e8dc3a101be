"""Functions that ``run_if`` skips, in TRL's trainers and in ours: what a serial run gives."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, reward
from guerdon.integrations.trl import Pipeline
from tests.integrations.trl.recording_trainer import trained
from tests.integrations.trl.tiny_trainer import last, make_trainer, rewards_of, without_times

pytestmark = [
    pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]


def odd(text: str) -> float:
    return float(len(text) % 2)


def judge(text: str) -> float:
    assert not odd(text), "its gate was closed"
    return float(len(text))


async def again(text: str) -> float:
    assert not odd(text), "its gate was closed"
    return len(text) / 2


# Sources last: the order in the list is that of the columns alone.
GATED = [
    reward(again, run_if={"judge": ">= 0"}, otherwise=0.25),
    reward(judge, lane="thread", run_if={"odd": "< 1"}),
    reward(odd, lane="thread"),
]


def serial_again(completions: list[str], **columns: Any) -> list[float]:
    return [0.25 if odd(text) else len(text) / 2 for text in completions]


def serial_judge(completions: list[str], **columns: Any) -> list[float | None]:
    return [None if odd(text) else float(len(text)) for text in completions]


def serial_odd(completions: list[str], **columns: Any) -> list[float]:
    return [odd(text) for text in completions]


SERIAL = [serial_again, serial_judge, serial_odd]


def history(trainer: Any) -> list[dict[str, float]]:
    """Without what only one of two runs logs."""
    entries = without_times(trainer.state.log_history)
    return [{key.replace("serial_", ""): value for key, value in entry.items()} for entry in entries]


def skipped(trainer: Any) -> float:
    """The share of the last step's samples that the judge did not see."""
    values = rewards_of(trainer)["judge"]
    return sum(math.isnan(value) for value in values) / len(values)


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_an_unmodified_trainer_logs_what_it_would_with_nothing_to_skip(kind: str, tmp_path: Path) -> None:
    plain = make_trainer(list(SERIAL), tmp_path / "plain", kind=kind)
    plain.train()
    with Dispatcher(GATED, workers=1, max_failure_rate=0.0, log_metrics="all") as dispatcher:
        ours = make_trainer(dispatcher.reward_funcs, tmp_path / "ours", kind=kind)
        ours.train()
    for mine, theirs in zip(history(ours), history(plain), strict=True):
        assert mine == pytest.approx(theirs, nan_ok=True)
    assert 0 < skipped(ours) < 1
    for name in ("judge", "again"):
        assert last(ours, f"guerdon/{name}/skipped_frac") == skipped(ours)
        assert last(ours, f"guerdon/{name}/failed_frac") == 0.0
    assert not any("guerdon/odd/skipped_frac" in entry for entry in ours.state.log_history)


def test_every_pipeline_has_the_rewards_of_a_serial_run(tmp_path: Path) -> None:
    """At learning rate 0 every step of every mode is TRL's."""
    options: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "prompts": 16,
        "max_steps": 2,
        "learning_rate": 0.0,
        "ends": 16,
    }
    plain = make_trainer(list(SERIAL), tmp_path / "plain", **options)
    plain.train()
    with Dispatcher(GATED, workers=1, max_failure_rate=0.0, log_metrics="all") as dispatcher:
        for mode in ("off", "overlap", Pipeline(mini_batch=True, lookahead=1)):
            ours = trained(dispatcher, tmp_path / "ours", mode, **options)
            for name in ("again", "judge", "odd"):
                mine, theirs = rewards_of(ours)[name], rewards_of(plain)[f"serial_{name}"]
                assert list(mine) == pytest.approx(list(theirs), abs=1e-6, nan_ok=True), (mode, name)
            assert 0 < last(ours, "guerdon/judge/skipped_frac") < 1
            assert last(ours, "guerdon/judge/failed_frac") == last(ours, "guerdon/again/failed_frac") == 0.0
