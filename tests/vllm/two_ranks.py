"""One rank of an asynchronous run with a real server, and of its resumption (torchrun)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerCallback

from guerdon import Dispatcher
from guerdon.integrations.trl import AsyncGRPOTrainer
from tests.integrations.trl.async_grpo import reward_functions
from tests.vllm.training import make_trainer, stand_in, steps_of


def weights_of(trainer: Any) -> list[float]:
    """Values by which adapters differ."""
    return [value.detach().double().sum().item() for name, value in trainer.model.named_parameters() if "lora_" in name]


class Begin(TrainerCallback):
    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        self.trainer: Any = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.report["begins with"] = weights_of(self.trainer)


def run(
    dispatcher: Dispatcher, server: Any, folder: Path, steps: int, checkpoint: Path | None = None
) -> dict[str, Any]:
    report: dict[str, Any] = {}
    begin = Begin(report)
    options: dict[str, Any] = {"per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 2}
    trainer = make_trainer(
        AsyncGRPOTrainer, server, folder, dispatcher, {"callbacks": [begin]}, max_steps=steps, **options
    )
    begin.trainer = trainer
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    report["log"] = steps_of(trainer)
    report["version"] = trainer.model_version
    report["ends with"] = weights_of(trainer)
    report["adapters"] = trainer._lora_name
    return report


def main(url: str, model: str, folder: Path) -> None:
    stand_in(pytest.MonkeyPatch())
    server = SimpleNamespace(url=url, model=model)
    out = folder / "out"
    with Dispatcher([reward_functions.length, reward_functions.rank]) as dispatcher:
        first = run(dispatcher, server, out, 2)
        second = run(dispatcher, server, out, 4, out / "checkpoint-2")
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps([first, second]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
