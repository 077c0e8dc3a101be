"""A pipeline that can't work is refused when the trainer is made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher, GuerdonWarning, RegistrationError, reward
from guerdon.integrations.trl import Pipeline
from guerdon.integrations.trl.pipeline.checking import check_pipeline
from guerdon.integrations.trl.pipeline.options import PRESETS


@reward
def one(text: str) -> float:
    return 1.0


DISPATCHER = Dispatcher([one], workers=2)


def trainer(**changed: Any) -> Any:
    """A trainer that every pipeline accepts, with some attributes changed; `__` is a dot."""
    made = SimpleNamespace(
        args=SimpleNamespace(
            per_device_train_batch_size=4,
            steps_per_generation=4,
            gradient_accumulation_steps=4,
            vllm_mode="server",
            use_transformers_continuous_batching=False,
            auto_find_batch_size=False,
            sync_ref_model=False,
            save_strategy="no",
            save_steps=500,
        ),
        accelerator=SimpleNamespace(dataloader_config=SimpleNamespace(dispatch_batches=None)),
        generation_config=SimpleNamespace(num_beams=1),
        num_generations=4,
        num_iterations=1,
        scale_rewards="group",
        multi_objective_aggregation="sum_then_normalize",
        rollout_func=None,
        tools=[],
        use_vllm=False,
    )
    for name, value in changed.items():
        *path, last = name.split("__")
        part: Any = made
        for step in path:
            part = getattr(part, step)
        setattr(part, last, value)
    return made


def test_presets_and_pipelines() -> None:
    assert Pipeline.of("off") == Pipeline.of(None) == Pipeline() == PRESETS["off"]
    assert Pipeline.of("all") == Pipeline(overlap=True, mini_batch=True, lookahead=1)
    assert Pipeline.of(Pipeline(lookahead=3)).lookahead == 3
    assert [name for name, preset in PRESETS.items() if preset.defers] == ["mini_batch", "one_step", "all"]


@pytest.mark.parametrize("given", ["on", "", 3, True, [Pipeline()]])
def test_invalid_pipelines_are_refused(given: Any) -> None:
    with pytest.raises(RegistrationError, match="expected a Pipeline or one of 'off', 'overlap'"):
        Pipeline.of(given)


@pytest.mark.parametrize(
    "values",
    [
        {"lookahead": -1},
        {"lookahead": True},
        {"lookahead": 1.5},
        {"lookahead": 17},
        {"overlap": 1},
        {"mini_batch": None},
    ],
)
def test_values_are_checked(values: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match=next(iter(values))):
        Pipeline(**values)


@pytest.mark.parametrize(
    ("part", "changed", "reason"),
    [
        ("overlap", {"rollout_func": print}, "rollout_func"),
        ("overlap", {"tools": [print]}, "tools"),
        ("overlap", {"use_vllm": True, "args__vllm_mode": "colocate"}, "colocate"),
        ("overlap", {"args__use_transformers_continuous_batching": True}, "continuous_batching"),
        ("overlap", {"generation_config__num_beams": 4}, "num_beams=4"),
        ("mini_batch", {"scale_rewards": "batch"}, "scale_rewards='batch'"),
        ("mini_batch", {"multi_objective_aggregation": "normalize_then_sum"}, "sum_then_normalize"),
        ("mini_batch", {"num_generations": 6}, "split over ranks: the 16 samples"),
        ("mini_batch", {"args__steps_per_generation": 1}, "raise steps_per_generation"),
        ("lookahead", {"accelerator__dataloader_config__dispatch_batches": True}, "dispatch_batches"),
        ("lookahead", {"args__auto_find_batch_size": True}, "auto_find_batch_size"),
    ],
)
def test_the_reason_is_given(part: str, changed: dict[str, Any], reason: str) -> None:
    wanted = "one_step" if part == "lookahead" else part
    with pytest.raises(
        RegistrationError, match=f"{part} can't work with this trainer: .*{reason}.*Without {part}: pipeline='off'"
    ):
        check_pipeline(PRESETS[wanted], trainer(**changed), [DISPATCHER])
    check_pipeline(PRESETS["off"], trainer(**changed), [DISPATCHER])


def test_the_message_names_the_pipeline_that_is_left() -> None:
    several = Pipeline(overlap=True, mini_batch=True, lookahead=2)
    left = r"Without overlap: pipeline=Pipeline\(overlap=False, mini_batch=True, lookahead=2\)"
    with pytest.raises(RegistrationError, match=left):
        check_pipeline(several, trainer(tools=[print]), [DISPATCHER])


@pytest.mark.parametrize("preset", ["overlap", "mini_batch", "one_step", "all"])
def test_without_a_function_of_guerdon_a_pipeline_is_off_and_says_so(preset: str) -> None:
    assert check_pipeline(PRESETS[preset], trainer(), [DISPATCHER]) == PRESETS[preset]
    with pytest.warns(GuerdonWarning, match=rf"pipeline='{preset}' has nothing to hide: Guerdon runs none"):
        assert check_pipeline(PRESETS[preset], trainer(), []) == PRESETS["off"]
    assert check_pipeline(PRESETS["off"], trainer(), []) == PRESETS["off"]


@pytest.mark.parametrize(("preset", "parts"), [("overlap", "overlap"), ("mini_batch", "mini_batch")])
def test_functions_that_take_the_whole_batch_are_named(preset: str, parts: str) -> None:
    def plain(completions: list[str], **columns: Any) -> list[float]:
        return [1.0] * len(completions)

    def other(completions: list[str], **columns: Any) -> list[float]:
        return [1.0] * len(completions)

    with pytest.warns(GuerdonWarning, match=rf"{parts} can't hide reward function 'plain': .*reward\(plain, rowwise="):
        check_pipeline(PRESETS[preset], trainer(), [Dispatcher([one, plain])])
    with pytest.warns(GuerdonWarning, match=r"can't hide the reward functions 'plain', 'other'"):
        check_pipeline(PRESETS[preset], trainer(), [Dispatcher([plain]), Dispatcher([other])])
    check_pipeline(PRESETS[preset], trainer(), [Dispatcher([one, reward(plain, rowwise=True)])])
    check_pipeline(PRESETS["one_step"], trainer(), [Dispatcher([plain])])


@pytest.mark.parametrize("preset", ["off", "mini_batch"])
def test_group_sizes_that_differ_are_refused(preset: str) -> None:
    with pytest.raises(RegistrationError, match="num_generations=2, the trainer num_generations=4"):
        check_pipeline(PRESETS[preset], trainer(), [Dispatcher([one], num_generations=2)])


def test_a_size_of_evaluation_that_differs_is_refused_before_training() -> None:
    same = [Dispatcher([one], num_generations=4)]
    evaluates = {"args__eval_strategy": "steps", "num_generations_eval": 2}
    with pytest.raises(RegistrationError, match="num_generations=4, the trainer num_generations_eval=2"):
        check_pipeline(PRESETS["off"], trainer(**evaluates), same)
    check_pipeline(PRESETS["off"], trainer(num_generations_eval=2), same)
    check_pipeline(PRESETS["off"], trainer(**{**evaluates, "num_generations_eval": None}), same)
    check_pipeline(PRESETS["off"], trainer(**evaluates), [Dispatcher([one])])


@pytest.mark.parametrize(
    ("preset", "changed", "warning"),
    [
        ("mini_batch", {"args__gradient_accumulation_steps": 2}, "scored fastest"),
        ("mini_batch", {"args__gradient_accumulation_steps": 6}, "scored fastest"),
        ("mini_batch", {"loss_type": "bnpo"}, "bnpo.*gradient differs"),
        ("mini_batch", {"top_entropy_quantile": 0.8}, "quantile of a micro-step.*gradient differs"),
        ("mini_batch", {"_entropy_bonus_enabled": True}, "entropy bonus.*gradient differs"),
        ("all", {"aux_loss_enabled": True}, "auxiliary loss.*gradient differs"),
        ("one_step", {"args__sync_ref_model": True}, "sync_ref_model"),
        ("all", {"args__save_strategy": "steps", "args__save_steps": 1, "num_iterations": 2}, "middle of a batch"),
    ],
)
def test_surprising_settings_are_warned_of(preset: str, changed: dict[str, Any], warning: str) -> None:
    with pytest.warns(GuerdonWarning, match=warning):
        check_pipeline(PRESETS[preset], trainer(**changed), [DISPATCHER])


@pytest.mark.filterwarnings("default")
def test_the_trainer_asks_when_it_is_made(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from tests.integrations.trl.recording_trainer import make_recording_trainer

    with pytest.raises(RegistrationError, match="scale_rewards='batch'"):
        make_recording_trainer(DISPATCHER, tmp_path, "mini_batch", scale_rewards="batch")
    with pytest.raises(RegistrationError, match="steps_per_generation=1"):
        make_recording_trainer(DISPATCHER, tmp_path, "mini_batch", gradient_accumulation_steps=1)
    with pytest.raises(RegistrationError, match="expected a Pipeline"):
        make_recording_trainer(DISPATCHER, tmp_path, "fast")
    closed = Dispatcher([one])
    closed.close()
    with pytest.raises(RegistrationError, match="is closed: make a new one"):
        make_recording_trainer(closed, tmp_path, "off")


@pytest.mark.filterwarnings("default")
def test_reward_models_alone_are_trained_with_without_a_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from guerdon.integrations.trl import GRPOTrainer
    from tests.integrations.trl.tiny_trainer import make_scorer, make_trainer, rewards_of

    scorer = make_scorer(tmp_path)
    with pytest.warns(GuerdonWarning, match="pipeline='one_step' has nothing to hide"):
        made = make_trainer(
            [scorer], tmp_path / "out", trainer_class=GRPOTrainer, more={"pipeline": "one_step"}, max_steps=2
        )
    assert made.pipeline == Pipeline()
    made.train()
    assert len(rewards_of(made)["scorer"]) == 8
