"""Rubrics in TRL's unmodified trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, reward, rubric
from tests.http.server import serving
from tests.http.test_rubric import CRITERIA, answer
from tests.integrations.trl.tiny_trainer import make_trainer, rewards_of

pytestmark = [
    pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]


@reward(lane="thread")
def half(completion: str) -> float:
    return 0.5


@pytest.mark.parametrize("per_call", ["all", "one"])
def test_each_criterion_is_a_column_of_the_trainer(per_call: Any, tmp_path: Path) -> None:
    with serving(answer) as server:
        ask = {"base_url": server.url, "model": "m", "per_call": per_call, "retries": 0}
        made = rubric(CRITERIA, weights={"correct": 2.0, "clear": 1.0}, **ask)  # type: ignore[arg-type]
        with Dispatcher([half, made], weights=[1.0, 0.5]) as dispatcher:
            assert dispatcher.reward_weights == [1.0, 1.0, 0.5]
            trainer = make_trainer(
                dispatcher.reward_funcs, tmp_path, reward_weights=dispatcher.reward_weights, max_steps=1
            )
            assert trainer.reward_func_names == ["half", "rubric/correct", "rubric/clear"]
            trainer.train()
            samples = len(trainer._logs["completion"])
            assert len(server.bodies) == samples * (2 if per_call == "one" else 1)
    assert rewards_of(trainer) == {
        "half": [0.5] * samples,
        "rubric/correct": [7.0] * samples,
        "rubric/clear": [5.0] * samples,
    }
    (entry,) = [entry for entry in trainer.state.log_history if "rewards/half/mean" in entry]
    assert entry["rewards/rubric/correct/mean"] == 7.0
    assert entry["rewards/rubric/clear/mean"] == 5.0
    assert entry["reward"] == pytest.approx(0.5 + 7.0 + 2.5)
    assert entry["guerdon/rubric/correct/failed_frac"] == entry["guerdon/rubric/clear/failed_frac"] == 0.0
