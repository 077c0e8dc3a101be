"""Every kind of loss, scale and schedule that TRL has is trained by every pipeline as by TRL.

At learning rate 0 the policy stays what it is, so a batch generated ahead, or trained on in another
order, has the same losses, norms, rewards and logs, step by step.
"""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, RegistrationError, reward
from guerdon.integrations.trl import GRPOTrainer, Pipeline
from tests.integrations.trl import reward_functions
from tests.integrations.trl.tiny_trainer import make_trainer, without_times

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore:mini_batch with steps_per_generation:guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]

REWARDS: Final = [reward_functions.vowels, reward_functions.answers, reward_functions.lengths]
MODES: Final = ("off", "overlap", "one_step", "mini_batch", Pipeline(mini_batch=True, lookahead=2))
BASE: Final[dict[str, Any]] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "learning_rate": 0.0,
    "max_steps": 3,
    "prompts": 16,
    "ends": 16,
    "reward_weights": [1.0, 0.3, 0.1],
}
SHORT: Final[dict[str, dict[str, Any]]] = {
    "sequences": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "steps that end inside a batch": {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "max_steps": 4,
    },
}
LONG: Final[dict[str, dict[str, Any]]] = {
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
    "no scale": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "objectives apart": {"multi_objective_aggregation": "normalize_then_sum"},
    "scale of the batch": {"scale_rewards": "batch"},
    "a reference": {"loss_type": "grpo", "beta": 0.04},
    "truncated ones left out": {"mask_truncated_completions": True},
    "each batch twice": {"num_iterations": 2},
    "two batches in a step": {"steps_per_generation": 2},
    "far ones masked": {"off_policy_mask_threshold": 0.5},
    "two epochs": {"max_steps": -1, "num_train_epochs": 2},
}
# Normalised over the whole batch, which has no piece that is complete before the rest.
WHOLE_BATCH: Final = ("objectives apart", "scale of the batch")


def slowly(function: Any) -> Any:
    """The function, row by row, each after a time of its own: groups end in another order."""
    if inspect.iscoroutinefunction(function):
        return reward(function, rowwise=True)

    @functools.wraps(function)
    def delayed(completions: list[str], **columns: Any) -> Any:
        time.sleep(random.Random(completions[0]).random() * 0.02)
        return function(completions=completions, **columns)

    return reward(delayed, rowwise=True, lane="thread")


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher([slowly(one) for one in REWARDS]) as made:
        yield made


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(name, marks=pytest.mark.soak) for name in LONG)])
def test_every_pipeline_trains_and_logs_as_trl(name: str, tmp_path: Path, dispatcher: Dispatcher) -> None:
    settings = {**BASE, **SHORT.get(name, {}), **LONG.get(name, {})}
    plain = make_trainer(list(REWARDS), tmp_path / "plain", **settings)
    plain.train()
    theirs = without_times(plain.state.log_history)
    assert any(entry.get("grad_norm", 0.0) > 0.0 for entry in theirs)
    for mode in MODES:
        given = {**settings, "trainer_class": GRPOTrainer, "more": {"pipeline": mode}}
        if name in WHOLE_BATCH and Pipeline.of(mode).mini_batch:
            with pytest.raises(RegistrationError, match="mini_batch can't work"):
                make_trainer(dispatcher, tmp_path / "refused", **given)
            continue
        ours = make_trainer(dispatcher, tmp_path / "ours", **given)
        ours.train()
        mine = without_times(ours.state.log_history)
        if Pipeline.of(mode).mini_batch and name == "steps that end inside a batch":
            # Each step has other rows than in TRL; rewards come with the last one.
            assert [entry.get("reward") for entry in mine[1:4:2]] == [
                pytest.approx(entry["reward"], abs=1e-6) for entry in theirs[:4:2]
            ], mode
            continue
        assert [set(entry) for entry in mine] == [set(entry) for entry in theirs], mode
        for number, entry in enumerate(theirs):
            # Of two, mini-batches log a mean of other means.
            for key in entry.keys() - {"entropy", "kl"}:
                assert mine[number][key] == pytest.approx(entry[key], rel=1e-4, abs=1e-5), (mode, number, key)
