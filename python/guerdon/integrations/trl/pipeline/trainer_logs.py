"""What the pipeline did, in the trainer's log, and the books of batches that are trained on later.

Per batch that is trained on, mean over the ranks (the wait: the longest), under ``guerdon/pipeline/``:

- ``wait_s``: seconds that the trainer stood still for rewards.
- ``reward_s``: seconds from the first sample's submission to the last outcome.
- ``hidden_frac``: the share of ``reward_s`` in which the trainer did something else.
- ``groups_in_flight``: groups without all their rewards when training asked for the batch, over all batches.
- ``early_frac``: the share of the samples whose scoring began while others were still generated.
- ``age_s``: seconds from the batch's generation until all of it was handed to training.
- ``staleness_steps``: optimizer steps between the policy that wrote it and the one that is trained.
- ``staleness_batches``: batches generated since.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from guerdon.integrations.trl.pipeline.generated_batch import Flight
from guerdon.integrations.trl.pipeline.scoring import Scoring

PREFIX = "guerdon/pipeline/"


def figures(flight: Flight, scoring: Scoring, *, step: int, newest: int) -> dict[str, float]:
    """How the pipeline did with a batch, on this rank."""
    wait, reward = scoring.waited_s, scoring.reward_s
    return {
        "wait_s": wait,
        "reward_s": reward,
        "hidden_frac": 1.0 if reward <= 0 else max(0.0, 1.0 - wait / reward),
        "groups_in_flight": float(flight.in_flight),
        "early_frac": 0.0 if flight.early is None else flight.early.count / max(1, len(flight.prompts)),
        "age_s": time.monotonic() - flight.born,
        "staleness_steps": float(step - flight.step),
        "staleness_batches": float(newest - 1 - flight.number),
    }


def log(trainer: Any, values: Mapping[str, float]) -> None:
    """Notes the figures of all ranks for the trainer's next log."""
    device = trainer.accelerator.device
    own = torch.tensor([list(values.values())], dtype=torch.float64 if device.type == "cpu" else torch.float32)
    ranks = trainer.accelerator.gather(own.to(device))
    for place, name in enumerate(values):
        column = ranks[:, place]
        figure = column.max() if name == "wait_s" else column.mean()
        trainer._metrics["train"][PREFIX + name].append(figure.item())


def record(trainer: Any, flight: Flight) -> None:
    """Notes in a trainer's books what of a batch is known before its rewards (F-1, F-2 of flight.py)."""
    books = flight.books
    theirs = trainer._metrics["train"]
    for name, values in books["_metrics"]["train"].items():
        if name == "num_tokens":
            theirs[name] = [trainer.state.num_input_tokens_seen]
        elif not _by_rewards(name, trainer.reward_func_names):
            theirs[name].extend(values)
    trainer._logs["images"].extend(books["_logs"]["images"])
    for column, values in books["_logs"]["extra"].items():
        trainer._logs["extra"][column].extend(values)


def _by_rewards(name: str, functions: list[str]) -> bool:
    """Whether TRL computes this metric from rewards, which the first pass does not have."""
    return name in ("reward", "reward_std", "frac_reward_zero_std") or name in {
        f"rewards/{function}/{part}" for function in functions for part in ("mean", "std")
    }


def batches_left(state: Any, args: Any, dataloader: Any) -> int:
    """Batches of the data that a run asks for from this optimizer step on."""
    accumulation = args.gradient_accumulation_steps
    try:
        length = len(dataloader)
    except TypeError:  # a stream: an epoch's odd rest only adds to this
        return int((state.max_steps - state.global_step) * accumulation)
    updates = max(-(-length // accumulation), 1)

    def batches(steps: int) -> int:
        return int((steps // updates) * length + min((steps % updates) * accumulation, length))

    return batches(int(state.max_steps)) - batches(int(state.global_step))
