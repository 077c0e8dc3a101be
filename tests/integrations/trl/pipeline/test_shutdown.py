"""However a run with a pipeline ends, nothing of it goes on, and another can follow."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from transformers import TrainerCallback

from guerdon import Dispatcher, RewardFailureError, reward
from guerdon.integrations.trl import Pipeline
from tests.integrations.trl import reward_functions
from tests.integrations.trl.recording_trainer import RecordingTrainer, make_recording_trainer, trained

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

BOTH = Pipeline(mini_batch=True, lookahead=1)


@reward
async def slow_later(prompt: str, trainer_state: Any) -> float:
    """At once for the first batches, and never for those that are begun after the first step."""
    import asyncio

    await asyncio.sleep(600 if trainer_state.global_step else 0)
    return 1.0


def assert_nothing_pending(trainer: RecordingTrainer, dispatcher: Dispatcher) -> None:
    deadline = time.monotonic() + 30
    while dispatcher.stats()["open_batches"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dispatcher.stats()["open_batches"] == 0
    assert trainer._trained_batch is None
    assert not trainer._generated_ahead
    assert trainer._generating is None


class StopAfter(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    def __init__(self, step: int, *, epoch: bool = False) -> None:
        self.step = step
        self.epoch = epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            if self.epoch:
                control.should_epoch_stop = True
            else:
                control.should_training_stop = True


def test_a_stop_with_rewards_that_never_come(tmp_path: Path) -> None:
    with Dispatcher([slow_later], workers=1) as dispatcher:
        trainer = trained(
            dispatcher,
            tmp_path,
            BOTH,
            gradient_accumulation_steps=2,
            steps_per_generation=2,
            max_steps=6,
            more={"callbacks": [StopAfter(2)]},
        )  # the third batch was begun at the second step
        assert trainer.state.global_step == 2
        assert_nothing_pending(trainer, dispatcher)


@pytest.mark.parametrize("mode", ["mini_batch", "one_step"])
def test_failing_rewards_end_the_run_and_another_can_follow(mode: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken"

    @reward(lane="thread", name="sometimes")
    def sometimes(text: str) -> float:
        if broken.exists():
            raise ValueError("now")
        return 1.0

    class Break(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            broken.touch()

    with Dispatcher([sometimes, reward_functions.vowels], workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, tmp_path, mode, max_steps=4, more={"callbacks": [Break()]})
        with pytest.raises(RewardFailureError, match="'sometimes' failed on 16 of 16 samples"):
            trainer.train()
        assert 1 <= trainer.state.global_step <= 2
        assert_nothing_pending(trainer, dispatcher)
        broken.unlink()
        again = trained(dispatcher, tmp_path, mode, max_steps=2)
        assert again.state.global_step == 2


@pytest.mark.parametrize(
    ("where", "error"),
    [("_generate", RuntimeError), ("_compute_loss", KeyboardInterrupt), ("replay", RuntimeError)],
    ids=["generation", "ctrl-c in training", "replay"],
)
def test_an_exception_in_mid_pipeline_leaves_nothing_pending(
    where: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Dispatcher([slow_later], workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, tmp_path, BOTH, max_steps=4)
        original, calls = getattr(trainer, where), []

        def fails(*args: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                # Made here: one that outlives the test holds the batch by its traceback
                raise error
            return original(*args, **named)

        monkeypatch.setattr(trainer, where, fails)
        with pytest.raises(error):
            trainer.train()
        assert_nothing_pending(trainer, dispatcher)
        monkeypatch.setattr(trainer, where, original)


def test_an_epoch_that_is_left_early_takes_its_batches_with_it(tmp_path: Path) -> None:
    with Dispatcher([reward_functions.vowels], workers=1) as dispatcher:
        seen = []
        for mode in ("off", "one_step"):
            trainer = trained(
                dispatcher,
                tmp_path,
                mode,
                num_train_epochs=2,
                max_steps=-1,
                more={"callbacks": [StopAfter(2, epoch=True)]},
            )
            seen.append(trainer.prompts_seen())
            assert_nothing_pending(trainer, dispatcher)
        assert seen[0] == seen[1]


@pytest.mark.parametrize("mode", ["mini_batch", BOTH], ids=str)
def test_a_run_is_resumed_with_the_prompts_that_it_would_have_seen(mode: Any, tmp_path: Path) -> None:
    """The checkpoint counts what was trained on, not what was generated ahead."""
    options: dict[str, Any] = {
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        "prompts": 8,
        "num_train_epochs": 2,
    }
    with Dispatcher([reward_functions.vowels], workers=1) as dispatcher:
        whole = trained(dispatcher, tmp_path / "whole", mode, **options)
        resumed = make_recording_trainer(dispatcher, tmp_path / "resumed", mode, **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
        assert_nothing_pending(resumed, dispatcher)
    state = json.loads((tmp_path / "whole" / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["num_input_tokens_seen"] == sum(whole.tokens[:8])
    assert resumed.state.global_step == 4
    prompts = [Counter(prompt for piece in one.pieces[-8:] for prompt, _ in piece) for one in (whole, resumed)]
    assert prompts[0] == prompts[1]
    assert len(resumed.pieces) == 8
