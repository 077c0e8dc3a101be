"""Trainers that take a sample without rewards for one with the reward 0: the user is warned before
the first optimizer step."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, GuerdonWarning, reward
from tests.integrations.trl import reward_functions
from tests.integrations.trl.tiny_trainer import make_data, make_settings, make_tokenizer, make_trainer

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

WARNING = "is not known to leave out samples that have no reward"


def good(completion: Any) -> float:
    return 1.0


def make_unmasked(kind: str, functions: list[Any], folder: Path) -> Any:
    """A trainer of TRL that has no mask for samples without rewards."""
    from transformers import Qwen2ForCausalLM, set_seed

    from tests.integrations.trl.tiny_trainer import make_config

    set_seed(7)
    tokenizer = make_tokenizer()
    settings = make_settings(folder, 7, max_completion_length=4)
    if kind == "SDPO":
        from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

        settings.update(distillation_weight=0.0)
        args, trainer = SDPOConfig(**settings), SDPOTrainer
    else:
        from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

        del settings["num_generations"], settings["beta"], settings["max_completion_length"]
        args, trainer = OnlineDPOConfig(**settings, max_new_tokens=4), OnlineDPOTrainer
    model = Qwen2ForCausalLM(make_config(tokenizer))
    model.save_pretrained(folder / "model")  # the trainer loads its other models from there
    model.config._name_or_path = str(folder / "model")
    return trainer(
        model=model, reward_funcs=functions, args=args, train_dataset=make_data(8), processing_class=tokenizer
    )


@pytest.mark.parametrize("kind", ["SDPO", "OnlineDPO"])
def test_a_trainer_without_a_mask_is_named_before_the_first_step(kind: str, tmp_path: Path) -> None:
    with Dispatcher([reward(good, lane="thread")]) as dispatcher:
        trainer = make_unmasked(kind, dispatcher.reward_funcs, tmp_path)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=f".*{WARNING}")
            with pytest.raises(
                GuerdonWarning, match=rf"{kind}Trainer \(trl 1.*{WARNING}.*incomplete='sum'.*on_failure="
            ):
                trainer.train()
        assert trainer.state.global_step == 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.train()
        assert not [one for one in caught if one.category is GuerdonWarning]  # it was said once
        assert trainer.state.global_step == 2


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_a_trainer_with_a_mask_is_known(kind: str, tmp_path: Path) -> None:
    """Also a subclass with its own way to call the functions."""
    import trl

    class DerivedTrainer(getattr(trl, f"{kind}Trainer")):  # type: ignore[misc]  # trl is not typed
        def _calculate_rewards(self, *args: Any, **named: Any) -> Any:
            return super()._calculate_rewards(*args, **named)

    with Dispatcher([reward_functions.flaky], workers=1) as dispatcher, warnings.catch_warnings():
        warnings.simplefilter("error", GuerdonWarning)
        make_trainer(dispatcher.reward_funcs, tmp_path, kind=kind, trainer_class=DerivedTrainer).train()


def test_a_trainer_with_a_mask_is_known_on_other_threads(tmp_path: Path) -> None:
    """As where a function of one's own calls columns concurrently."""
    with Dispatcher([reward(good, lane="thread")]) as dispatcher, ThreadPoolExecutor(1) as pool:

        def threaded(**columns: Any) -> Any:
            return pool.submit(dispatcher.reward_funcs[0], **columns).result()

        with warnings.catch_warnings():
            warnings.simplefilter("error", GuerdonWarning)
            make_trainer([threaded], tmp_path).train()


def test_a_trainer_that_does_its_own_sum_is_not(tmp_path: Path) -> None:
    """As trainers built on TRL do, which replace the method with the mask."""
    import torch
    import trl

    class DerivedTrainer(trl.GRPOTrainer):  # type: ignore[misc]  # trl is not typed
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            prompts = [row["prompt"] for row in inputs]
            return torch.nansum(self._calculate_rewards(inputs, prompts, ["x"] * len(prompts), [[1]] * len(prompts)), 1)

    with Dispatcher([reward(good, lane="thread")]) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path, trainer_class=DerivedTrainer)
        rows = [{"prompt": "a", "answer": "a"}] * 4
        with pytest.warns(GuerdonWarning, match=f"DerivedTrainer.*{WARNING}"):
            trainer._generate_and_score_completions(rows)


def test_an_unknown_caller_is_warned_at_the_first_failure() -> None:
    @reward(lane="thread")
    def picky(completion: str) -> float:
        if completion == "bad":
            raise ValueError(completion)
        return 1.0

    with Dispatcher([picky]) as dispatcher, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        column = dispatcher.reward_funcs[0]
        assert column(completions=["a", "b"]) == [1.0, 1.0]
        assert not caught
        for _ in range(2):
            assert column(completions=["a", "bad"]) == [1.0, None]
    assert [str(one.message).partition(" is ")[0] for one in caught] == ["what calls this dispatcher's columns"]
