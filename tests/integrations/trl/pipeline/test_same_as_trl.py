"""Our GRPO trainer logs and trains on what TRL's does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import transformers

from guerdon import Dispatcher, reward
from guerdon.integrations.trl import GRPOTrainer, Pipeline
from tests.integrations.trl import reward_functions
from tests.integrations.trl.recording_trainer import SIZES, make_recording_trainer, trained
from tests.integrations.trl.tiny_trainer import assert_same_entry, make_data, make_trainer, rewards_of, without_times

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

REWARDS = [reward_functions.vowels, reward_functions.answers, reward_functions.lengths, reward_functions.noted]
MODES = ["overlap", "mini_batch", "one_step", "all", Pipeline(lookahead=3)]


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher(REWARDS, workers=2) as made:
        yield made


def plain_run(folder: Path, **options: Any) -> Any:
    trainer = make_trainer(list(REWARDS), folder, **{**SIZES, **options})
    trainer.train()
    return trainer


@pytest.mark.parametrize("conversational", [False, True], ids=["plain", "chat"])
def test_without_a_pipeline_it_is_trls_own(conversational: bool, tmp_path: Path, dispatcher: Dispatcher) -> None:
    """Losses, norms, rewards, extra columns and metrics, in training and evaluation: equal."""
    options: dict[str, Any] = {"conversational": conversational, "evaluate": True}
    plain = plain_run(tmp_path / "plain", **options)
    ours = make_recording_trainer(dispatcher, tmp_path / "ours", **options)
    assert ours.reward_func_names == plain.reward_func_names
    ours.train()
    assert without_times(ours.state.log_history) == without_times(plain.state.log_history)
    np.testing.assert_array_equal(list(rewards_of(ours).values()), list(rewards_of(plain).values()))
    assert dict(ours._logs["extra"]) == dict(plain._logs["extra"])
    assert list(ours._logs["advantages"]) == list(plain._logs["advantages"])
    assert list(ours._logs["completion"]) == list(plain._logs["completion"])


def test_the_first_logged_step_is_trls(tmp_path: Path, dispatcher: Dispatcher) -> None:
    """Two batches in the first step, and a reference model; aligned ones are in the next test."""
    options: dict[str, Any] = {"max_steps": 1, "steps_per_generation": 2, "beta": 0.04, "loss_type": "grpo"}
    plain = plain_run(tmp_path / "plain", **options)
    for mode in MODES[2:4]:
        ours = trained(dispatcher, tmp_path / "ours", mode, **options)
        assert_same_entry(*(without_times(trainer.state.log_history)[0] for trainer in (ours, plain)))
        assert dict(ours._logs["extra"]) == dict(plain._logs["extra"])
        assert list(ours._logs["advantages"]) == pytest.approx(list(plain._logs["advantages"]), abs=1e-6)


def test_at_learning_rate_zero_every_step_is_trls_and_the_ratio_is_one(tmp_path: Path, dispatcher: Dispatcher) -> None:
    """Random numbers are used in TRL's order: modes differ only in the policy's staleness."""
    options: dict[str, Any] = {"learning_rate": 0.0, "ends": 16}
    plain = plain_run(tmp_path / "plain", **options)
    for mode in MODES:
        ours = trained(dispatcher, tmp_path / "ours", mode, **options)
        for mine, theirs in zip(
            without_times(ours.state.log_history), without_times(plain.state.log_history), strict=True
        ):
            assert_same_entry(mine, theirs)
        assert len(ours.ratios) == (12 if ours.pipeline.lookahead else 0)
        assert all(ratio == 0.0 for ratio in ours.ratios)
        names = ["wait_s", "reward_s", "hidden_frac", "early_frac", "groups_in_flight", "age_s"]
        names += ["staleness_steps", "staleness_batches"]
        for entry in ours.state.log_history[:3]:
            figures = {name: entry[f"guerdon/pipeline/{name}"] for name in names}
            assert 0 <= figures["hidden_frac"] <= 1
            assert (figures["early_frac"] > 0) == ours.pipeline.overlap
            assert all(value >= 0 for value in figures.values())


def test_with_lookahead_the_ratio_is_that_of_the_policy_that_wrote_it(tmp_path: Path, dispatcher: Dispatcher) -> None:
    """And its staleness is bounded."""
    options: dict[str, Any] = {"learning_rate": 1e-2, "max_steps": 5, "prompts": 32}
    ours = trained(dispatcher, tmp_path, Pipeline(lookahead=2), **options)
    batches = np.array(ours.ratios).reshape(5, 4)
    assert (batches[0] == 0.0).all()  # written by the policy that is trained
    assert (batches[1:] > 1e-4).all()  # by one before
    log = ours.state.log_history[:5]
    assert [entry["guerdon/pipeline/staleness_steps"] for entry in log] == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert [entry["guerdon/pipeline/staleness_batches"] for entry in log] == [2.0, 2.0, 2.0, 1.0, 0.0]


def placed(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
    return [len(text) + place for text, place in zip(completions, environments, strict=True)]


@pytest.mark.parametrize(
    "names", [["trainer_state", "log_metric", "log_extra", "scoring", "self"], ["environments"]], ids=" ".join
)
def test_a_column_may_have_any_name(names: list[str], tmp_path: Path) -> None:
    """TRL puts its own arguments in place of a column; all other columns reach the functions."""
    data = make_data(16)
    for factor, name in enumerate(names, 1):
        data = data.add_column(name, [factor * row for row in range(16)])
    batch = reward_functions.numbers if len(names) > 1 else placed
    ours = [batch] if batch is placed else [batch, reward(reward_functions.numbers_of_row)]
    options: dict[str, Any] = {**SIZES, "learning_rate": 0.0, "ends": 16, "max_steps": 2, "data": data}
    plain = make_trainer([batch], tmp_path, **options)
    plain.train()
    expected = rewards_of(plain)[batch.__name__]
    with Dispatcher(ours, workers=1) as made:
        for mode in ("off", "overlap", "one_step"):
            trainer = trained(made, tmp_path, mode, **options)
            assert list(rewards_of(trainer).values()) == [expected] * len(ours)


def test_a_function_may_be_replaced_while_training(tmp_path: Path, dispatcher: Dispatcher) -> None:
    class Replacing(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            trainer.reward_funcs[1] = reward_functions.letters

    options: dict[str, Any] = {"learning_rate": 0.0, "ends": 16, "max_steps": 4, "prompts": 16}
    expected: dict[str, list[float]] = {}
    for mode in (None, "off", "overlap", "mini_batch", "one_step"):
        kind, more = (GRPOTrainer, {"pipeline": mode}) if mode else (None, {})
        functions: Any = dispatcher if mode else list(REWARDS)
        trainer = make_trainer(functions, tmp_path, trainer_class=kind, more=more, **{**SIZES, **options})
        trainer.add_callback(Replacing())
        trainer.train()
        expected = expected or rewards_of(trainer)
        np.testing.assert_array_equal(list(rewards_of(trainer).values()), list(expected.values()))
