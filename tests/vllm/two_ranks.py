"""One rank of an asynchronous run with a real server; started by torchrun from the tests."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher
from guerdon.integrations.trl import AsyncGRPOTrainer
from tests.integrations import async_functions as functions
from tests.vllm.training import make_trainer, stand_in, steps_of


def report(trainer: Any) -> dict[str, Any]:
    adapter = [value for name, value in trainer.model.named_parameters() if "lora_" in name]
    return {
        "steps": [entry["step"] for entry in steps_of(trainer)],
        "log": steps_of(trainer),
        "version": trainer.model_version,
        "weights": [float(value.double().sum()) for value in adapter],
        "name": trainer._lora_name,
    }


def main(url: str, model: str, folder: Path) -> None:
    patch = pytest.MonkeyPatch()
    stand_in(patch)
    server: Any = SimpleNamespace(url=url, model=model)
    options: dict[str, Any] = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "save_strategy": "steps",
        "save_steps": 2,
    }
    reports = {}
    with Dispatcher([functions.length, functions.letters, functions.rank]) as dispatcher:
        whole = make_trainer(AsyncGRPOTrainer, server, folder / "out", dispatcher, {"concurrent_groups": 4}, **options)
        whole.train()
        reports["whole"] = report(whole)
        resumed = make_trainer(
            AsyncGRPOTrainer, server, folder / "out", dispatcher, {"concurrent_groups": 4}, **options
        )
        resumed.train(resume_from_checkpoint=str(folder / "out" / "checkpoint-2"))
        reports["resumed"] = report(resumed)
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
