"""`pipelined`: pipelines for RLOO, for what derives from TRL's trainers, for users' classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

trl = pytest.importorskip("trl")

from guerdon import Dispatcher, GuerdonWarning, RegistrationError, RewardFailureError, reward  # noqa: E402
from guerdon.integrations.trl import GRPOTrainer, Pipeline, pipelined  # noqa: E402
from tests.integrations.trl import reward_functions  # noqa: E402
from tests.integrations.trl.tiny_trainer import (  # noqa: E402
    MODES,
    SIZES,
    apart,
    assert_same_runs,
    make_scorer,
    make_trainer,
)

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

REWARDS = [reward_functions.vowels, reward_functions.answers, reward_functions.noted]


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher(REWARDS, workers=1) as made:
        yield made


@pytest.mark.parametrize("options", [{"beta": 0.0}, {"beta": 0.2, "reward_clip_range": (0.0, 0.5)}], ids=str)
def test_rloo_is_trained_as_by_trl(options: dict[str, Any], tmp_path: Path, dispatcher: Dispatcher) -> None:
    """At learning rate 0 every step of every mode; a KL penalty counts in the rewards."""
    settings = {**SIZES, **options, "kind": "RLOO"}
    plain = make_trainer(list(REWARDS), tmp_path / "plain", **settings)
    with apart(plain):
        plain.train()
    if options["beta"]:
        assert plain.state.log_history[0]["kl"] != 0
    for mode in MODES:
        ours = make_trainer(
            dispatcher, tmp_path / "ours", trainer_class=pipelined(trl.RLOOTrainer), more={"pipeline": mode}, **settings
        )
        with apart(ours):
            ours.train()
        assert_same_runs(ours, plain)
        assert (ours.state.log_history[0]["guerdon/pipeline/early_frac"] > 0) == ours.pipeline.overlap


@reward(lane="thread")
def length(text: str) -> float:
    return float(len(text))


def test_with_lookahead_rloos_ratio_is_that_of_the_policy_that_wrote(tmp_path: Path) -> None:
    kind = pipelined(trl.RLOOTrainer)
    settings = {**SIZES, "kind": "RLOO", "trainer_class": kind, "learning_rate": 5e-2}
    with Dispatcher([length], workers=1) as made:
        ours = make_trainer(made, tmp_path, more={"pipeline": "one_step"}, **settings)
        ours.train()
    clipped = [entry["clip_ratio/region_mean"] for entry in ours.state.log_history[:2]]
    assert clipped[0] == 0.0 < clipped[1]


def test_gmpo_is_trained_as_by_trl(tmp_path: Path, dispatcher: Dispatcher) -> None:
    from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

    made: list[Any] = []
    for kind, mode in ((GMPOTrainer, None), (pipelined(GMPOTrainer), "all")):
        more = {} if mode is None else {"pipeline": mode}
        trainer = make_trainer(
            dispatcher.reward_funcs, tmp_path, config_class=GMPOConfig, trainer_class=kind, more=more, **SIZES
        )
        trainer.train()
        made.append(trainer)
    assert_same_runs(made[1], made[0])


class ScaledTrainer(trl.GRPOTrainer):  # type: ignore[misc]
    """As a user writes it: arguments passed on, a loss, rewards and a metric of its own."""

    def __init__(self, *args: Any, factor: float = 1.0, **kwargs: Any) -> None:
        self.factor = factor
        super().__init__(*args, **kwargs)

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return self.factor * super()._compute_loss(model, inputs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        lengths = rewards.new_tensor([len(ids) for ids in completion_ids_list])
        return rewards * self.factor - lengths[:, None] / 100


class Shortening:
    """A mixin for both trainers: shorter completions get more."""

    def _calculate_rewards(self, *given: Any) -> Any:
        rewards = super()._calculate_rewards(*given)  # type: ignore[misc]
        return rewards - rewards.new_tensor([len(ids) for ids in given[-1]])[:, None] / 100


class ShorteningTRL(Shortening, trl.GRPOTrainer):  # type: ignore[misc]
    pass


class ShorteningOurs(Shortening, GRPOTrainer):
    pass


class Counting(trl.GRPOTrainer):  # type: ignore[misc]
    """It logs a number of its generation beside the rewards."""

    def _generate(self, prompts: Any) -> Any:
        self._metrics["train"]["rewards/mine"].append(float(len(prompts)))
        return super()._generate(prompts)


class Complete(trl.GRPOTrainer):  # type: ignore[misc]
    """One that brings its own reward functions."""

    def __init__(self, model: Any, args: Any, **kwargs: Any) -> None:
        kwargs.pop("reward_funcs")
        super().__init__(model=model, args=args, reward_funcs=[reward_functions.vowels], **kwargs)


def test_overrides_of_a_users_class_still_apply(tmp_path: Path) -> None:
    """Once, also to the rewards of a model, and with what TRL would give them."""
    functions = [*REWARDS, make_scorer(tmp_path)]
    plain = make_trainer(list(functions), tmp_path, trainer_class=ScaledTrainer, more={"factor": 0.5}, **SIZES)
    plain.train()
    for mode in ("off", "all"):
        more = {"factor": 0.5, "pipeline": mode}
        # An override that looks at the whole batch would see some groups at a time.
        warned = pytest.warns(GuerdonWarning, match="ScaledTrainer overrides _calc") if mode == "all" else nullcontext()
        with warned:
            ours = make_trainer(list(functions), tmp_path, trainer_class=pipelined(ScaledTrainer), more=more, **SIZES)
        assert isinstance(ours, ScaledTrainer)
        with ours.dispatchers[0]:
            ours.train()
        assert_same_runs(ours, plain)


def test_an_override_in_front_of_a_pipeline_gets_no_stubs(tmp_path: Path, dispatcher: Dispatcher) -> None:
    plain = make_trainer(list(REWARDS), tmp_path, trainer_class=ShorteningTRL, **SIZES)
    plain.train()
    for mode, left in {"overlap": "overlap", "mini_batch": "off", "one_step": "off", "all": "overlap"}.items():
        message = f"Shortening overrides _calculate_rewards.*goes on with pipeline='{left}'"
        with nullcontext() if mode == left else pytest.warns(GuerdonWarning, match=message):
            ours = make_trainer(dispatcher, tmp_path, trainer_class=ShorteningOurs, more={"pipeline": mode}, **SIZES)
        assert ours.pipeline == Pipeline.of(left)
        ours.train()
        assert_same_runs(ours, plain)


def test_metrics_of_a_users_class_are_logged(tmp_path: Path, dispatcher: Dispatcher) -> None:
    more = {"pipeline": "one_step"}
    ours = make_trainer(dispatcher, tmp_path, trainer_class=pipelined(Counting), more=more, **SIZES)
    ours.train()
    assert [entry["rewards/mine"] for entry in ours.state.log_history[:2]] == [16.0, 16.0]


def test_a_class_with_reward_functions_of_its_own(tmp_path: Path) -> None:
    ours = make_trainer([], tmp_path, trainer_class=pipelined(Complete), more={"pipeline": "one_step"}, **SIZES)
    assert ours.dispatchers[0].names == ("vowels",)
    with ours.dispatchers[0]:
        ours.train()
    assert ours.state.log_history[0]["guerdon/vowels/failed_frac"] == 0


def test_the_class_is_made_once_and_ours_is_taken_as_it_is() -> None:
    assert pipelined(ScaledTrainer) is pipelined(ScaledTrainer)
    assert pipelined(GRPOTrainer) is GRPOTrainer
    assert pipelined(pipelined(ScaledTrainer)) is pipelined(ScaledTrainer)


class OwnBatches(trl.GRPOTrainer):  # type: ignore[misc]
    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return super()._generate_and_score_completions(inputs)


class OwnPieces(trl.GRPOTrainer):  # type: ignore[misc]
    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return super()._prepare_inputs(generation_batch)


class OtherRewards(trl.GRPOTrainer):  # type: ignore[misc]
    _calculate_rewards = None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (trl.SFTTrainer, "derives from neither"),
        (OtherRewards, r"calls _calculate_rewards, and the class has no such method \(trl 1\."),
        ("GRPOTrainer", "expected a trainer's class"),
    ],
)
def test_a_class_that_differs_is_refused_with_the_reason(kind: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=reason):
        pipelined(kind)


@pytest.mark.parametrize(
    ("kind", "mode", "reason"),
    [
        (OwnBatches, "one_step", "lookahead can't work.*OwnBatches overrides _generate_and_score_completions"),
        (OwnBatches, "mini_batch", "mini_batch can't work.*OwnBatches overrides _generate_and_score"),
        (OwnPieces, "mini_batch", "mini_batch can't work.*OwnPieces overrides _prepare_inputs"),
        (trl.RLOOTrainer, "mini_batch", "normalize_advantages"),
    ],
)
def test_parts_that_an_override_rules_out_are_refused(
    kind: Any, mode: str, reason: str, tmp_path: Path, dispatcher: Dispatcher
) -> None:
    rloo = {"kind": "RLOO", "normalize_advantages": True} if kind is trl.RLOOTrainer else {}
    with pytest.raises(RegistrationError, match=reason):
        make_trainer(dispatcher, tmp_path, trainer_class=pipelined(kind), more={"pipeline": mode}, **SIZES, **rloo)


def test_rollout_func_with_lookahead(tmp_path: Path) -> None:
    """It is called once a batch, with the trainer as it is then; what it adds reaches rewards."""
    seen: list[int] = []

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        seen.append(trainer.state.global_step)
        tokens = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        completions = [[70 + row % 5, trainer._tokenizer.eos_token_id] for row in range(len(prompts))]
        logps = [[-1.0] * len(completion) for completion in completions]
        return {
            "prompt_ids": tokens,
            "completion_ids": completions,
            "logprobs": logps,
            "turn": list(range(len(prompts))),
        }

    @reward(lane="thread")
    def turns(turn: int) -> float:
        return float(turn)

    with Dispatcher([turns], workers=1) as made:
        ours = make_trainer(
            made,
            tmp_path,
            trainer_class=GRPOTrainer,
            more={"pipeline": Pipeline(mini_batch=True, lookahead=1), "rollout_func": rollout},
            **{**SIZES, "max_steps": 3, "ends": 0},
        )
        ours.train()
    assert seen == [0, 0, 1]  # the first batch and the one ahead; then one ahead
    assert list(ours._logs["rewards"]["turns"]) == [float(row) for row in range(16)]


@pytest.mark.filterwarnings("ignore:mini_batch with steps_per_generation")
def test_a_run_that_ends_inside_a_batch_logs_its_rewards_and_judges_its_failures(tmp_path: Path) -> None:
    """With mini-batches most of them come after the last step."""

    @reward(lane="thread")
    def long(text: str) -> float:
        return float(len(text))

    @reward(lane="thread")
    def broken(text: str) -> float:
        raise ValueError("no")

    inside: dict[str, Any] = {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "max_steps": 1}
    inside |= {"per_device_train_batch_size": 4}
    with Dispatcher([long], workers=1) as dispatcher:
        trainer = make_trainer(
            dispatcher, tmp_path / "long", trainer_class=GRPOTrainer, more={"pipeline": "mini_batch"}, **inside
        )
        trainer.train()
    assert [entry["guerdon/long/failed_frac"] for entry in trainer.state.log_history if "reward" in entry] == [0.0]
    with Dispatcher([broken], workers=1) as dispatcher:
        trainer = make_trainer(
            dispatcher, tmp_path / "broken", trainer_class=GRPOTrainer, more={"pipeline": "mini_batch"}, **inside
        )
        with pytest.raises(RewardFailureError, match="'broken' failed"):
            trainer.train()
