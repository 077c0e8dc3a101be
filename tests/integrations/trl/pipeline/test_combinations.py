"""Pipelines with reward models, adapters, evaluation, tables of completions, and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import pandas as pd
import torch
import trl

from guerdon import Dispatcher
from guerdon.integrations.trl import Pipeline, pipelined
from tests.integrations.trl import reward_functions
from tests.integrations.trl.recording_trainer import SIZES, make_recording_trainer, trained
from tests.integrations.trl.tiny_trainer import assert_same_entry, make_scorer, make_trainer, rewards_of, without_times

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

BOTH = Pipeline(mini_batch=True, lookahead=1)
PAIR: list[Any] = [reward_functions.vowels, reward_functions.lengths]
TWO_STEPS = {**SIZES, "max_steps": 2}


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_scorer(tmp_path_factory.mktemp("models"))


def test_a_reward_model_keeps_its_place_its_weight_and_its_values(scorer: str, tmp_path: Path) -> None:
    """A dispatcher, a model and a plain function; at learning rate 0 every step is TRL's."""
    weights = [1.0, 0.5, 0.1, 2.0]
    options: dict[str, Any] = {**TWO_STEPS, "learning_rate": 0.0}
    plain = make_trainer(
        [reward_functions.vowels, scorer, reward_functions.lengths, reward_functions.answers],
        tmp_path,
        reward_weights=weights,
        **options,
    )
    plain.train()
    with Dispatcher(
        [reward_functions.vowels, scorer, reward_functions.lengths], weights=weights[:3], workers=2
    ) as dispatcher:
        for mode in ("off", BOTH):
            ours = make_recording_trainer(
                [dispatcher, reward_functions.answers], tmp_path, mode, reward_weights=weights, **options
            )
            given, own = ours.dispatchers
            assert given is dispatcher
            with own:
                ours.train()
            for mine, theirs in zip(
                without_times(ours.state.log_history), without_times(plain.state.log_history), strict=True
            ):
                assert_same_entry(mine, theirs)
            assert list(rewards_of(ours)["scorer"]) == pytest.approx(list(rewards_of(plain)["scorer"]), abs=1e-6)


def test_weights_of_a_dispatcher_hold_where_the_config_has_none(scorer: str, tmp_path: Path) -> None:
    with Dispatcher([reward_functions.vowels, scorer], weights=[0.25, 3.0], workers=1) as dispatcher:
        ours = make_recording_trainer(dispatcher, tmp_path)
        assert ours.reward_weights.tolist() == [0.25, 3.0]
        mixed = make_recording_trainer([reward_functions.lengths, dispatcher], tmp_path)
        assert mixed.reward_weights.tolist() == [1.0, 0.25, 3.0]
        trainer = make_recording_trainer(dispatcher, tmp_path, reward_weights=[1.0, 2.0])
        assert trainer.reward_weights.tolist() == [1.0, 2.0]


class OwnWeights(trl.GRPOTrainer):  # type: ignore[misc]
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.reward_weights = torch.tensor([0.5, 2.0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([None], [0.5, 2.0]),
        ([[1.0, 3.0]], [1.0, 3.0]),
        ([[1.0, 1.0]], [1.0, 1.0]),
        ([[1.0], [3.0]], [1.0, 3.0]),
    ],
    ids=str,
)
def test_weights_of_dispatchers_replace_all_that_a_class_sets_itself(
    given: list[Any], expected: list[float], tmp_path: Path
) -> None:
    functions: list[list[Any]] = [PAIR[:1], PAIR[1:]] if len(given) == 2 else [PAIR]
    made = [Dispatcher(some, weights=weights, workers=1) for some, weights in zip(functions, given, strict=True)]
    ours = make_trainer(list(made), tmp_path, trainer_class=pipelined(OwnWeights), **TWO_STEPS)
    assert ours.reward_weights.tolist() == expected
    for dispatcher in made:
        dispatcher.close()


@pytest.mark.parametrize(("mode", "debug"), [("off", False), (BOTH, False), ("mini_batch", True)], ids=str)
def test_a_failed_sample_has_no_value_of_a_reward_model_either(
    mode: Any, debug: bool, scorer: str, tmp_path: Path
) -> None:
    with Dispatcher([reward_functions.flaky, scorer], workers=1, max_failure_rate=1.0, debug=debug) as dispatcher:
        ours = trained(dispatcher, tmp_path, mode, max_steps=1, per_device_train_batch_size=16, prompts=16)
    failed = np.array([reward_functions.unlucky(text) for text in ours._logs["completion"]])
    assert 0 < failed.sum() < len(failed)
    rewards = {name: np.array(values) for name, values in rewards_of(ours).items()}
    assert (np.isnan(rewards["scorer"]) == failed).all()
    assert (np.array(ours._logs["advantages"])[failed] == 0).all()


def test_an_adapter_is_trained_with_the_ratio_of_the_policy_that_wrote(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    options: dict[str, Any] = {"beta": 0.04, "ends": 16, "more": {"peft_config": config}}
    plain = make_trainer([reward_functions.vowels], tmp_path, **options, **{**TWO_STEPS, "max_steps": 1})
    plain.train()
    with Dispatcher([reward_functions.vowels], workers=1) as dispatcher:
        for mode in ("off", "all"):
            ours = trained(dispatcher, tmp_path, mode, max_steps=2, learning_rate=5e-2, **options)
            mine, theirs = (dict(without_times(one.state.log_history)[0]) for one in (ours, plain))
            assert mine.pop("learning_rate") != theirs.pop("learning_rate")
            mine.pop("epoch"), theirs.pop("epoch")
            assert_same_entry(mine, theirs)
            if ours.pipeline.lookahead:
                assert ours.state.log_history[0]["guerdon/pipeline/early_frac"] > 0
                assert max(ours.ratios[:4]) == 0.0
                assert max(ours.ratios[4:]) > 0.0


def test_evaluation_and_tables_are_trls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evaluation inside a run with batches pending: at learning rate 0 equal to TRL's in values
    too, until random numbers are used in another order; in what is logged and written, always.
    """
    options: dict[str, Any] = {**TWO_STEPS, "evaluate": True, "log_completions": True, "learning_rate": 0.0}
    plain = make_trainer([reward_functions.vowels, reward_functions.noted], tmp_path / "plain", **options)
    plain.train()
    with Dispatcher([reward_functions.vowels, reward_functions.noted], workers=1) as dispatcher:
        for number, mode in enumerate(("mini_batch", BOTH)):
            ours = trained(dispatcher, tmp_path / f"ours{number}", mode, **options)
            capsys.readouterr()
            mine, theirs = (without_times(one.state.log_history) for one in (ours, plain))
            assert [set(entry) for entry in mine] == [set(entry) for entry in theirs]
            assert len([entry for entry in mine if "eval_reward" in entry]) == 2
            assert_same_entry(mine[0], theirs[0])
            assert len(ours.pieces) == 8
            tables = [
                {path.name: pd.read_parquet(path) for path in (tmp_path / one / "completions").glob("*.parquet")}
                for one in (f"ours{number}", "plain")
            ]
            assert set(tables[0]) == set(tables[1])
            for name, table in tables[0].items():
                assert list(table.columns) == list(tables[1][name].columns)
                assert len(table) == 16
                assert table["vowels"].tolist() == pytest.approx(
                    [reward_functions.share(text, "aeiou") for text in table["completion"]], abs=1e-6
                )
