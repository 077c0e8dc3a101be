"""TRL's trainers: the stock ones, as a dispatcher's columns meet them, and ours.

Importing this module imports neither trl nor torch: each public name is loaded when first used.

- `trainer_context`, `reward_funcs`: what any trainer is to a dispatcher, and its list of functions.
- `trl_version`: our own trainers need one version of TRL, all else works from 0.18 on.
- `pipeline`: `GRPOTrainer`. `async_grpo`: `AsyncGRPOTrainer`.
- `tool_calls`: tools and environments on the engine. Both trainers use it; it uses neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.integrations.trl.async_grpo.trainer import AsyncGRPOTrainer
    from guerdon.integrations.trl.pipeline.options import Pipeline
    from guerdon.integrations.trl.pipeline.trainer import GRPOTrainer, pipelined
    from guerdon.integrations.trl.tool_calls.environments import Environments, environments
    from guerdon.integrations.trl.tool_calls.tools import Tools, tools

__all__ = [
    "AsyncGRPOTrainer",
    "Environments",
    "GRPOTrainer",
    "Pipeline",
    "Tools",
    "environments",
    "pipelined",
    "tools",
]

_HOMES: Final = {
    "AsyncGRPOTrainer": "async_grpo.trainer",
    "Environments": "tool_calls.environments",
    "GRPOTrainer": "pipeline.trainer",
    "Pipeline": "pipeline.options",
    "Tools": "tool_calls.tools",
    "environments": "tool_calls.environments",
    "pipelined": "pipeline.trainer",
    "tools": "tool_calls.tools",
}

_find, __dir__ = _names(globals(), _HOMES)


def __getattr__(name: str) -> object:
    if _HOMES.get(name, "").endswith(".trainer"):
        from guerdon.integrations.trl.trl_version import advice, require_trl, unusable

        require_trl(name)
        try:
            return _find(name)
        except (ImportError, AttributeError) as error:
            if "trl" not in f"{getattr(error, 'name', None)} {error}":
                raise
            raise unusable(name, f"can't be made ({error}): {advice()}") from error
    return _find(name)
