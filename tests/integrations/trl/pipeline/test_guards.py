"""A run ends with the reason and TRL's version if TRL changes what a pipeline relies on."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

trl = pytest.importorskip("trl")

import torch  # noqa: E402
from trl.trainer import grpo_trainer  # noqa: E402

from guerdon import DataError, Dispatcher, GuerdonError, reward  # noqa: E402
from guerdon.integrations.trl import GRPOTrainer, Pipeline  # noqa: E402
from guerdon.integrations.trl.pipeline.batch_rewards import BatchRewards  # noqa: E402
from guerdon.integrations.trl.pipeline.options import PRESETS  # noqa: E402
from guerdon.integrations.trl.pipeline.trl_families import GRPO  # noqa: E402
from tests.integrations.trl import reward_functions  # noqa: E402
from tests.integrations.trl.recording_trainer import make_recording_trainer, trained  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]
MAKES_A_BATCH = "_generate_and_score_completions"
THEIRS = getattr(trl.GRPOTrainer, MAKES_A_BATCH)


@reward(lane="thread")
def vowels(text: str) -> float:
    return reward_functions.share(text, "aeiou")


def assert_ends_with(reason: str, pipeline: Any, folder: Path) -> None:
    with Dispatcher([vowels], workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, folder, pipeline)
        with pytest.raises(GuerdonError, match=rf"{reason} \(trl {trl.__version__}; "):
            trainer.train()
        assert dispatcher.stats().get("open_batches", 0) == 0


def test_lookahead_ends_where_trl_gives_no_log_probabilities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the importance ratio would be 1, and nothing would tell."""

    def moved(self: Any, inputs: Any) -> Any:
        made = THEIRS(self, inputs)
        made.pop("old_per_token_logps", None)
        return made

    monkeypatch.setattr(trl.GRPOTrainer, MAKES_A_BATCH, moved)
    assert_ends_with("its importance ratio would be 1", "one_step", tmp_path)


def test_a_replay_ends_where_trl_takes_rewards_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(self: Any, inputs: Any) -> Any:
        if self._replaying is not None:
            return {"advantages": torch.zeros(len(inputs))}
        return THEIRS(self, inputs)

    monkeypatch.setattr(trl.GRPOTrainer, MAKES_A_BATCH, moved)
    assert_ends_with("without asking for its rewards", "mini_batch", tmp_path)


def test_overlap_ends_where_trl_generates_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(self: Any, prompts: Any) -> Any:
        ids = [[70, self._tokenizer.eos_token_id] for _ in prompts]
        return ids, ids, None, ["a"] * len(prompts), None, {}, None, []

    monkeypatch.setattr(trl.GRPOTrainer, "_generate", moved)
    assert_ends_with("where completions are seen to end", "overlap", tmp_path)


def test_weights_that_differ_are_found_before_anything_is_generated(tmp_path: Path) -> None:
    with Dispatcher([vowels, reward_functions.lengths], weights=[1.0, 0.5], workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, tmp_path, reward_weights=[1.0, 2.0])
        with pytest.raises(DataError, match=r"reward_weights=\[1.0, 2.0\], the dispatcher weights=\[1.0, 0.5\]"):
            trainer.train()
        assert trainer.generated == []


@pytest.mark.parametrize("pipeline", ["off", "mini_batch", Pipeline(mini_batch=True, lookahead=2)], ids=str)
def test_texts_are_gathered_once_a_batch(pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay for each piece hands TRL stubs, and what waits is no longer than TRL's own table."""
    gathered: Counter[str] = Counter()
    gather = grpo_trainer.gather_object

    def counting(values: Any) -> Any:
        packed = pickle.dumps(values)
        gathered.update({"say": packed.count(b"say "), "bytes": len(packed)})
        return gather(values)

    monkeypatch.setattr(grpo_trainer, "gather_object", counting)
    trainer = trained([vowels], tmp_path, pipeline, max_steps=3)
    # Each row of three batches once, as by TRL
    assert gathered["say"] == 3 * 16
    assert gathered["bytes"] < 3 * 2000
    assert len(trainer._logs["prompt"]) == len(trainer._logs["advantages"]) == 16


def test_another_number_of_generated_values_is_named_with_the_version() -> None:
    """The replay, whose stand-ins have the known number, would end in a bare ValueError."""

    class Longer:
        def _generate(self, prompts: Any) -> Any:
            return (prompts, *range(8))

    class Trainer(BatchRewards, Longer):
        pipeline = PRESETS["one_step"]
        _family = GRPO
        _generating = _replaying = None

    with pytest.raises(GuerdonError, match=r"_generate gave 9 values, .* repeats 8 \(trl 1\.16"):
        Trainer()._generate([])
    Trainer.pipeline = PRESETS["off"]
    assert len(Trainer()._generate([])) == 9


def test_a_trainer_generates_without_its_init_as_trls_own_tests_do() -> None:
    trainer: Any = object.__new__(GRPOTrainer)
    trainer.accelerator, trainer.model = SimpleNamespace(device="cpu"), SimpleNamespace(training=True)
    trainer.use_vllm, trainer.rollout_func = False, lambda prompts, trainer: {}
    with pytest.raises(ValueError, match="rollout_func must return keys"):
        trainer._generate(["a prompt"])
