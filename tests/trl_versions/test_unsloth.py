"""Unsloth's generated trainer, with the package itself: `make test-trl-versions` runs this in an
environment with Unsloth and a TRL that it takes. Unsloth rewrites TRL's trainers on GPUs alone;
here the same function of it is called on a CPU."""

from __future__ import annotations

import importlib.util
import warnings
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

if importlib.util.find_spec("unsloth") is None:
    pytest.skip("Unsloth is not installed", allow_module_level=True)

from guerdon import Dispatcher, GuerdonWarning
from tests.compatibility.recorder import Note
from tests.trl_versions import rewards

pytestmark = pytest.mark.filterwarnings("default")  # what other packages warn of


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> None:
    """Unsloth leaves a thread and compiled files; what Guerdon leaves, the other tests look for."""


def test_the_generated_trainer_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compatibility: Note) -> None:
    """Its code is made of TRL's and no subclass of it. Failed samples are left out as by that TRL,
    so nothing is warned of."""
    row = f"Unsloth {metadata.version('unsloth')}"
    compatibility("built-on-trl", row, "`reward_funcs`", "works: its generated trainer", ("trl", "transformers"))
    for name in ("UNSLOTH_ALLOW_CPU", "UNSLOTH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TRITON_INTERPRET"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UNSLOTH_COMPILE_LOCATION", str(tmp_path / "generated"))
    monkeypatch.chdir(tmp_path)
    import unsloth  # before trl, as it asks
    from unsloth.models.rl import _patch_trl_rl_trainers_impl

    _patch_trl_rl_trainers_impl("grpo_trainer")
    import trl

    from tests.trl_versions.tiny_trainers import make_trainer

    assert trl.GRPOTrainer.__name__ == "UnslothGRPOTrainer"
    functions = [rewards.digits, rewards.longest, rewards.unlucky]
    with Dispatcher(functions, workers=1, max_failure_rate=1) as dispatcher, warnings.catch_warnings():
        warnings.simplefilter("error", GuerdonWarning)
        trainer = make_trainer(
            dispatcher.reward_funcs, tmp_path, trainer=trl.GRPOTrainer, config=trl.GRPOConfig, optim="adamw_torch"
        )
        for name in ("for_training", "for_inference"):  # what Unsloth adds to models that it loads
            setattr(trainer.model, name, partial(getattr(unsloth.FastLanguageModel, name), trainer.model))
        assert trainer.reward_func_names == ["digits", "longest", "unlucky"]
        trainer.train()
    assert trainer.state.global_step == 2
