"""One rank of a synchronous run whose completions come from a real server, which rank 0 asks
(torchrun)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher
from guerdon.integrations.trl import Pipeline
from tests.integrations.trl.pipeline.server_ranks import in_worker, limited, place_in_group, watched
from tests.integrations.trl.recording_trainer import RecordingTrainer
from tests.integrations.trl.tiny_trainer import make_data
from tests.vllm.training import make_server_trainer

# By name: the pipeline, whether prompts are conversations, and the sizes of a run.
RUNS: dict[str, tuple[Pipeline, bool, dict[str, int]]] = {
    "overlap": (Pipeline(overlap=True), False, {}),
    "all": (Pipeline.of("all"), True, {}),
    "split": (Pipeline(overlap=True), False, {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}),
}


def main(url: str, model: str, folder: Path) -> None:
    server: Any = SimpleNamespace(url=url, model=model)
    reports = {}
    for name, (pipeline, conversational, sizes) in RUNS.items():
        data = make_data(24, conversational=conversational)
        with Dispatcher([limited, place_in_group, in_worker], workers=1) as dispatcher:
            trainer = make_server_trainer(
                RecordingTrainer,
                dispatcher,
                folder / "out",
                server,
                pytest.MonkeyPatch(),
                {"pipeline": pipeline},
                data,
                max_completion_length=48,
                **sizes,
            )
            reports[name] = watched(trainer, [dispatcher], trainer.train)
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
