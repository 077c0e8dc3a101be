"""The trainer's logs: what the pipeline did, and the logs of batches that are trained on later.

A batch is logged when it is trained on, as if it had been generated then. Metrics that TRL computes
from rewards it has not seen yet are dropped; the replay with the true rewards logs them.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from guerdon.integrations.trl.patching import patched
from guerdon.integrations.trl.pipeline.generated_batch import GeneratedBatch

PREFIX = "guerdon/pipeline/"
TEXTS = ("prompt", "completion")
# TRL computes these and ``rewards/<function>/…`` from rewards, which the first pass has not.
_FROM_REWARDS = ("reward", "reward_std", "frac_reward_zero_std")


def empty_logs(trainer: Any) -> dict[str, Any]:
    """Returns the attributes in which TRL's trainer keeps its later logs, empty."""

    def emptied(value: Any) -> Any:
        if type(value) is dict:
            return {name: emptied(part) for name, part in value.items()}
        empty = copy.copy(value)  # a deque with its length, a defaultdict with its factory
        empty.clear()
        return empty

    names = ("_metrics", "_logs", "_pending_extra_logs", "_pending_metrics")
    return {name: emptied(getattr(trainer, name)) for name in names}


def log_pipeline(trainer: Any, generated: GeneratedBatch) -> None:
    """Adds how the pipeline did with a batch to the trainer's next log: the ranks' mean, of
    `wait_s` the maximum. `docs/trl.md` explains them."""
    scoring, early = trainer.scoring_of(generated), generated.early_scoring
    wait, reward = scoring.waited_s, scoring.reward_s
    values = {
        "wait_s": wait,
        "reward_s": reward,
        "hidden_frac": 1.0 if reward <= 0 else max(0.0, 1.0 - wait / reward),
        "groups_in_flight": float(generated.groups_in_flight),
        "early_frac": 0.0 if early is None else len(early.begun) / max(1, len(generated.source)),
        "age_s": time.monotonic() - generated.generated_at,
        "staleness_steps": float(trainer.state.global_step - generated.policy_step),
        "staleness_batches": float(len(trainer._generated_ahead)),
    }
    device = trainer.accelerator.device
    own = torch.tensor([list(values.values())], dtype=torch.float64 if device.type == "cpu" else torch.float32)
    ranks = trainer.accelerator.gather(own.to(device))
    for index, name in enumerate(values):
        column = ranks[:, index]
        value = column.max() if name == "wait_s" else column.mean()
        trainer._metrics["train"][PREFIX + name].append(value.item())


def log_generation(trainer: Any, generated: GeneratedBatch) -> None:
    """Adds to a trainer's metrics what of a batch is known before its rewards."""
    trainer.state.num_input_tokens_seen += generated.num_tokens
    theirs = trainer._metrics["train"]
    columns = [f"rewards/{each}/{part}" for each in trainer.reward_func_names for part in ("mean", "std")]
    for name, values in generated.logs["_metrics"]["train"].items():
        if name == "num_tokens":
            theirs[name] = [trainer.state.num_input_tokens_seen]
        elif name not in (*_FROM_REWARDS, *columns):
            theirs[name].extend(values)


@contextmanager
def recording(trainer: Any, generated: GeneratedBatch) -> Iterator[None]:
    """Prepares the replay that is logged: its texts are stubs, those of the generation are logged.

    All columns of the table get their rows of a batch here, so that they stay side by side. For
    TRL's counts by token, the generation's count is the right one.
    """
    logs = trainer._logs
    known = generated.logs["_logs"]
    kl = len(trainer._metrics["train"].get("kl", ()))
    with patched(trainer, {"_logs": {**logs, **{name: deque(maxlen=0) for name in TEXTS}}}):
        yield
    for name in (*TEXTS, "images"):
        logs[name].extend(known[name])
    for column, values in known["extra"].items():
        logs["extra"][column].extend(values)
    if "kl" in trainer._metrics["train"]:
        del trainer._metrics["train"]["kl"][kl:]
