"""TRL's trainers: what a dispatcher is to them, and ours that derive from them.

This module holds only the map of public names, each imported when first used: importing it imports neither trl nor torch.

- Any trainer: `host` is one as columns meet it, `functions` its list of reward functions.
- The synchronous trainer: `grpo` is the class, `pipeline` what may go on at the same time, `flight` a batch whose rewards may be
  missing, `scoring` its rewards, `overlap` and `vllm_client` those of completions that are finished early, `minibatch` training by
  groups, `reader` the data ahead, `straddle` groups on several ranks, `metrics` the trainer's log.
- Tools and environments: `toolset` and `worlds` are what users call, `running` runs them on the engine, `routed` makes them look as
  before, `snapshots` are environments for reward functions, `copying` takes them in time, `turns` and `sidebyside` run all samples
  of a turn together.
- `asynchronous`: TRL's asynchronous trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.integrations.trl.asynchronous.calls import VLLMCalls
    from guerdon.integrations.trl.asynchronous.trainer import AsyncGRPOTrainer
    from guerdon.integrations.trl.grpo import GRPOTrainer
    from guerdon.integrations.trl.pipeline import Pipeline
    from guerdon.integrations.trl.toolset import Tools, tools
    from guerdon.integrations.trl.worlds import Environments, environments

__all__ = [
    "AsyncGRPOTrainer",
    "Environments",
    "GRPOTrainer",
    "Pipeline",
    "Tools",
    "VLLMCalls",
    "environments",
    "tools",
]

_HOMES: Final = {
    "AsyncGRPOTrainer": "asynchronous.trainer",
    "Environments": "worlds",
    "GRPOTrainer": "grpo",
    "Pipeline": "pipeline",
    "Tools": "toolset",
    "VLLMCalls": "asynchronous.calls",
    "environments": "worlds",
    "tools": "toolset",
}

__getattr__, __dir__ = _names(globals(), _HOMES)
