"""`reward_funcs` in the stock trainers of the TRL that is installed: `make test-trl-versions` runs
this with each version that docs/compatibility.md names."""

from __future__ import annotations

import copy
import os
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, GuerdonWarning
from tests.compatibility.recorder import Note
from tests.trl_versions import rewards
from tests.trl_versions.tiny_trainers import VERSION, classes, make_trainer, without_times

pytestmark = [
    # Other packages warn, too.
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
]

# TRL leaves samples without rewards out since 1.6, in these trainers.
MASKS = {"GRPO", "RLOO"} if VERSION >= (1, 6) else set()
# TRL before 0.28 awaits no reward functions; a dispatcher does for any TRL.
PLAIN = [rewards.vowels, rewards.lengths_now]
WHOLE = pytest.mark.whole
NOT_LEFT_OUT = "is not known to leave out samples that have no reward"


@pytest.fixture
def offered(kind: str, compatibility: Note) -> None:
    """Skips where this TRL has no such trainer, and notes what the test shows of it."""
    cell = "works" if kind in MASKS else "works, warns"
    compatibility("trl", metadata.version("trl"), f"{kind}Trainer", cell, ("transformers",))
    if classes(kind) is None:
        pytest.skip(f"this TRL has no {kind}Trainer that takes reward functions")


def test_the_trl_is_the_one_asked_for() -> None:
    assert ".".join(map(str, VERSION)) == os.environ["TRL_VERSION"]


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("kind", ["GRPO", pytest.param("RLOO", marks=WHOLE)])
def test_a_run_is_the_one_of_plain_trl(kind: str, tmp_path: Path) -> None:
    """Names, rewards, losses and gradients of two real steps, under the same seed."""
    plain = make_trainer(PLAIN, tmp_path / "plain", kind)
    plain.train()
    with Dispatcher([rewards.vowels, rewards.lengths], workers=1, incomplete="sum") as dispatcher:
        ours = make_trainer(dispatcher.reward_funcs, tmp_path / "ours", kind)
        ours.train()
    assert ours.state.global_step == 2
    history = without_times(ours.state.log_history)
    assert history == without_times(plain.state.log_history)
    assert any("rewards/lengths/mean" in entry for entry in history)


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("kind", ["GRPO", *(pytest.param(kind, marks=WHOLE) for kind in ("RLOO", "SDPO", "OnlineDPO"))])
def test_decorated_functions_train(kind: str, tmp_path: Path) -> None:
    """A function of one sample and one of a group, which needs the group size."""
    size = {"SDPO": 4, "OnlineDPO": 2}.get(kind)  # of others it is known
    functions = [rewards.digits, rewards.longest]
    with Dispatcher(functions, workers=1, incomplete="sum", num_generations=size) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path, kind)
        before = copy.deepcopy(trainer.model.state_dict())
        trainer.train()
        assert trainer.state.global_step == 2
        after = trainer.model.state_dict()
        assert all(after[name].isfinite().all() for name in before)
        if kind in ("GRPO", "RLOO"):
            assert any((after[name] != before[name]).any() for name in before)


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("kind", ["GRPO", pytest.param("RLOO", marks=WHOLE)])
def test_a_trainer_that_counts_failed_samples_is_warned_of(kind: str, tmp_path: Path) -> None:
    """Either the trainer gives a failed sample the advantage 0, and nothing is said; or it takes it
    for one with the reward 0, and that is said before the first optimizer step."""
    seen: list[tuple[bool, float]] = []

    class WatchedTrainer(classes(kind)[0]):  # type: ignore[misc, index]  # trl is not typed
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            made = super()._generate_and_score_completions(inputs)
            texts = self.processing_class.batch_decode(made["completion_ids"], skip_special_tokens=True)
            seen.extend((rewards.fails(t), float(a)) for t, a in zip(texts, made["advantages"], strict=True))
            return made

    with Dispatcher([rewards.unlucky], workers=1, max_failure_rate=1) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path, kind, trainer=WatchedTrainer)
        if kind not in MASKS:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=f".*{NOT_LEFT_OUT}")
                with pytest.raises(GuerdonWarning, match=rf"WatchedTrainer.*{NOT_LEFT_OUT}"):
                    trainer.train()
            assert trainer.state.global_step == 0
            seen.clear()
        trainer.train()
    failed = [advantage for failed, advantage in seen if failed]
    assert failed
    assert len(failed) < len(seen)
    assert (set(failed) == {0.0}) == (kind in MASKS)


@pytest.mark.whole
@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("kind", ["SDPO", "OnlineDPO"])
def test_trainers_that_never_leave_samples_out_are_named(kind: str, tmp_path: Path) -> None:
    with Dispatcher([rewards.vowels], workers=1) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path, kind)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=f".*{NOT_LEFT_OUT}")
            with pytest.raises(GuerdonWarning, match=rf"{kind}Trainer.*{NOT_LEFT_OUT}"):
                trainer.train()
        assert trainer.state.global_step == 0


@pytest.mark.parametrize("name", ["GRPOTrainer", "AsyncGRPOTrainer"])
def test_our_own_trainers_say_which_trl_they_need(name: str, compatibility: Note) -> None:
    from guerdon.integrations import trl as integration

    cell = "works" if VERSION == (1, 16) else "asks for 1.16"
    compatibility("trl", metadata.version("trl"), "Guerdon's own trainers", cell)
    if VERSION == (1, 16):
        assert getattr(integration, name).__name__ == name
    elif VERSION < (1, 16):
        with pytest.raises(ImportError, match=rf"{name} needs TRL 1\.16, and trl {VERSION[0]}\.{VERSION[1]}\.\d+ is"):
            getattr(integration, name)
