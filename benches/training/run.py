"""One run of one mode: real generation, training and rewards of a small model, each padded to the
time in the recipe.

A reward waits for its delay, like a request to a judge. It is the share of digits in the
completion, which is typical of answers to GSM8K and which an untrained model learns in a few steps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, reward

BATCH, ACCUMULATION, GENERATIONS = 8, 4, 4
SAMPLES = BATCH * ACCUMULATION
DELAYS = (1.0, 40.0)
"""Seconds of a reward in the published recipe."""
PROMPT, LENGTH = 32, 8
"""Characters (tokens) of a prompt and of a completion."""


class Calls:
    """When the rewards of a run started and ended, in the order of samples."""

    def __init__(self, seed: int, scale: float) -> None:
        self.times: list[list[float]] = []
        self._random = random.Random(seed)
        self._scale = scale

    async def score(self, completion: str) -> float:
        begun = [time.perf_counter(), 0.0]
        self.times.append(begun)
        await asyncio.sleep(self._random.uniform(*DELAYS) / self._scale)
        begun[1] = time.perf_counter()
        return sum(letter.isdigit() for letter in completion) / LENGTH

    def batches(self) -> list[list[float]]:
        """For each batch, when each of its groups was complete, seconds from the first call's
        start."""
        found = []
        for first in range(0, len(self.times) - SAMPLES + 1, SAMPLES):
            batch = self.times[first : first + SAMPLES]
            start = min(begun for begun, _ in batch)
            ends = [end - start for _, end in batch]
            found.append([max(ends[group : group + GENERATIONS]) for group in range(0, SAMPLES, GENERATIONS)])
        return found


def questions() -> list[str]:
    """Questions of GSM8K, cut to what the model can read."""
    folder = Path(os.environ.get("GUERDON_SHARED") or Path(__file__).parents[3] / "shared")
    path = folder / "data" / "gsm8k_train.jsonl"
    if not path.is_file():
        sys.exit(f"There is no {path}: GUERDON_SHARED names the folder that holds data/gsm8k_train.jsonl.")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["question"][:PROMPT] for line in lines]


def train(mode: str, *, seed: int, steps: int, scale: float, generation: float, training: float) -> dict[str, Any]:
    """Trains; what it took, step by step.

    Args:
        scale: The recipe's seconds are divided by it.
        generation: The recipe's seconds of generation.
        training: Of the training on one batch.
    """
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback

    from guerdon.integrations.trl import GRPOTrainer, Pipeline
    from tests.integrations.trl import tiny_trainer

    class PaddedTrainer(GRPOTrainer):
        """Pads generation and the training on a micro-batch to the times in the recipe.

        The recipe's trainer computes the generating policy's log-probabilities for every batch, TRL
        only for one that is trained on later: the pass is part of the training time, as it is
        there.
        """

        trained_s = 0.0
        prepared_s = 0.0
        passes_s = 0.0

        def _generate_single_turn(self, *args: Any, **named: Any) -> Any:
            end = time.perf_counter() + generation / scale
            made = super()._generate_single_turn(*args, **named)
            time.sleep(max(0.0, end - time.perf_counter()))
            return made

        def _get_per_token_logps_and_entropies(self, *args: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            made = super()._get_per_token_logps_and_entropies(*args, **named)
            self.passes_s += time.perf_counter() - begun
            return made

        def _prepare_inputs(self, inputs: Any) -> Any:
            begun = time.perf_counter()
            self.passes_s = 0.0
            prepared = super()._prepare_inputs(inputs)
            self.prepared_s = time.perf_counter() - begun - self.passes_s
            return prepared

        def training_step(self, *args: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            loss = super().training_step(*args, **named)
            took = time.perf_counter() - begun - self.prepared_s
            left = max(0.0, training / scale / ACCUMULATION - took)
            time.sleep(left)
            self.trained_s += took + left
            return loss

    class Ends(TrainerCallback):
        """When each optimizer step ended, and how long the micro-steps before it trained."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_train_begin(self, *args: Any, **named: Any) -> None:
            self.ends.append(time.perf_counter())

        def on_step_end(self, *args: Any, **named: Any) -> None:
            self.ends.append(time.perf_counter())

    both = Pipeline(mini_batch=True, lookahead=1)
    calls, ends = Calls(seed, scale), Ends()
    chosen = random.Random(seed).sample(questions(), min(64, steps * SAMPLES // GENERATIONS))
    with tempfile.TemporaryDirectory() as folder:
        torch.set_num_threads(1)
        with Dispatcher([reward(calls.score, name="digits", timeout=600)]) as dispatcher:
            trainer = tiny_trainer.make_trainer(
                dispatcher,  # type: ignore[arg-type] # our trainer takes it bare
                Path(folder),
                trainer_class=PaddedTrainer,
                seed=seed,
                data=Dataset.from_dict({"prompt": chosen}),
                more={"pipeline": both if mode == "both" else mode, "callbacks": [ends]},
                max_steps=steps,
                num_generations=GENERATIONS,
                per_device_train_batch_size=BATCH,
                gradient_accumulation_steps=ACCUMULATION,
                max_completion_length=LENGTH,
                learning_rate=5e-3,
                lr_scheduler_type="constant",
                logging_steps=1,
                log_level="error",
            )
            trainer.train()
        tiny_trainer.end_loops()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    return {
        "mode": mode,
        "seed": seed,
        "steps_s": [after - before for before, after in zip(ends.ends, ends.ends[1:], strict=False)],
        "wait_s": [log["guerdon/pipeline/wait_s"] for log in logs],
        "rewards": [log["reward"] for log in logs],
        "trained_s": trainer.trained_s / steps,
        "batches": calls.batches(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", required=True)
    for name, kind in (("seed", int), ("steps", int), ("scale", float), ("generation", float), ("training", float)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    options = vars(parser.parse_args())
    warnings.simplefilter("ignore")
    print(json.dumps(train(options.pop("mode"), **options)))


if __name__ == "__main__":
    main()
