"""Parts of TRL's trainers that pipelines need, for GRPO and RLOO, with a check that they exist.

A trainer's class is checked before an instance is made, and each call of TRL that a pipeline relies
on while it runs; the messages name the version of TRL. Nothing is patched in trl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trl

from guerdon.errors import GuerdonError, RegistrationError

INSTEAD: Final = "Use TRL's own trainer with reward_funcs=dispatcher.reward_funcs."


@dataclass(frozen=True)
class Family:
    """One of TRL's trainers, for it and what derives from it.

    Attributes:
        base: TRL's class.
        ratio: Where a batch has the log-probabilities of the policy that wrote it.
        neutral: Attributes with which a replay skips what has nothing to do with rewards.
        generated: What `_generate` gives: token ids of prompts and of completions, completions.
        penalizes: Whether log-probabilities count in the rewards, as a KL penalty.
    """

    base: Any
    ratio: str
    neutral: Mapping[str, Any]
    generated: Callable[[list[list[int]], list[Any]], tuple[Any, ...]]
    penalizes: bool


GRPO: Final = Family(
    trl.GRPOTrainer,
    "old_per_token_logps",
    {"use_vllm": False, "beta": 0.0, "environment_factories": None, "environments": None, "tools": []},
    lambda ids, completions: (ids, ids, None, completions, None, {}, None, []),
    penalizes=False,
)
RLOO: Final = Family(
    trl.RLOOTrainer,
    "old_logps",
    {"use_vllm": False},
    lambda ids, completions: (ids, ids, completions),
    penalizes=True,
)

# Methods that are overridden or called.
_METHODS: Final = (
    "_prepare_inputs",
    "_generate_and_score_completions",
    "_generate",
    "_generate_single_turn",
    "_calculate_rewards",
    "_get_per_token_logps_and_entropies",
    "_log_completion_extra",
    "_log_metric",
    "_inner_training_loop",
    "_run_epoch",
    "get_batch_samples",
    "training_step",
)


def family_of(kind: type) -> Family:
    """The family of a trainer's class.

    Raises:
        RegistrationError: It has none, or lacks a method that pipelines override.
    """
    family = next((one for one in (GRPO, RLOO) if issubclass(kind, one.base)), None)
    if family is None:
        raise RegistrationError(
            f"pipelined({kind.__name__}): it derives from neither trl.GRPOTrainer nor trl.RLOOTrainer, whose generated "
            f"batches pipelines know. {INSTEAD}"
        )
    missing = [name for name in _METHODS if getattr(kind, name, None) is None]
    if missing:
        raise RegistrationError(
            f"pipelined({kind.__name__}): a pipeline calls {missing[0]}, and the class has no such method "
            f"(trl {trl.__version__}). {INSTEAD}"
        )
    return family


def overriding(kind: type, name: str) -> list[type]:
    """The classes of a user behind a trainer's class that define this method."""
    others = ("guerdon", "trl", "transformers")
    return [one for one in kind.__mro__ if name in vars(one) and one.__module__.partition(".")[0] not in others]


def override_problems(kind: type, mixin: type) -> dict[str, str]:
    """Returns by part of a pipeline the reason why it can't work with overrides of a trainer's
    class."""
    problems: dict[str, str] = {}
    behind = kind.__mro__[kind.__mro__.index(mixin) :]
    for one in overriding(kind, "_generate_and_score_completions"):
        reason = f"{one.__name__} overrides _generate_and_score_completions, "
        problems["mini_batch"] = f"{reason}of which a batch in several pieces makes one call with stubs for each piece."
        if one in behind:
            problems["lookahead"] = f"{reason}which is called a second time, with stubs, when the rewards are complete."
    for one in overriding(kind, "_prepare_inputs"):
        if one in behind:
            problems["mini_batch"] = f"{one.__name__} overrides _prepare_inputs, which makes the pieces of a batch."
    return problems


def changed(what: str, instead: str = INSTEAD) -> GuerdonError:
    """The error for a call of TRL that is not as it was."""
    return GuerdonError(f"{what} (trl {trl.__version__}; pipelines are tested with 1.16). {instead}")
