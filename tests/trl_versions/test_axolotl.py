"""axolotl's dotted names, with the package itself: `make test-trl-versions` runs this in an
environment with axolotl and the TRL that it pins."""

from __future__ import annotations

import warnings
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("axolotl")

from guerdon import GuerdonWarning
from tests.compatibility.recorder import Note
from tests.trl_versions import axolotl_rewards
from tests.trl_versions.tiny_trainers import make_trainer

pytestmark = pytest.mark.filterwarnings("default")  # what other packages warn of

NAMES = [f"{axolotl_rewards.__name__}.{name}" for name in ("digits_reward", "unlucky_reward")]


def test_dotted_names_are_the_columns_and_train(tmp_path: Path, compatibility: Note) -> None:
    """Through axolotl's own lookup, in the trainer and config that it chooses. Failed samples are
    left out as by the TRL that it pins, so nothing is warned of."""
    from axolotl.core.trainers.grpo import GRPOStrategy
    from axolotl.utils.dict import DictDefault

    row = f"axolotl {metadata.version('axolotl')}"
    compatibility("built-on-trl", row, "`reward_funcs`", "works: dotted names", ("trl", "transformers"))
    (functions,) = GRPOStrategy.set_trainer_args(DictDefault({"trl": {"reward_funcs": NAMES}}))
    assert functions == axolotl_rewards.dispatcher.reward_funcs
    with axolotl_rewards.dispatcher, warnings.catch_warnings():
        warnings.simplefilter("error", GuerdonWarning)
        trainer = make_trainer(
            functions,
            tmp_path,
            trainer=GRPOStrategy.get_trainer_class(sequence_parallel=False),
            config=GRPOStrategy.get_training_args_class(),
        )
        assert trainer.reward_func_names == ["digits", "unlucky"]
        trainer.train()
    assert trainer.state.global_step == 2
