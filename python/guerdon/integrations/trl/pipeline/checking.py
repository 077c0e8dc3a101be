"""Refuses the parts of a pipeline that can't work with a trainer and its functions, and warns of
surprises in those that can.

Either comes once, when the trainer is made, with the reason and what to change.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guerdon.errors import GuerdonWarning, RegistrationError
from guerdon.integrations.trl.pipeline.options import PRESETS, Pipeline
from guerdon.integrations.trl.reward_funcs import check_group_sizes

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher


def check_pipeline(
    pipeline: Pipeline, trainer: Any, dispatchers: Sequence[Dispatcher], problems: Mapping[str, str] | None = None
) -> Pipeline:
    """Refuses what the pipeline can't do with this trainer, and warns where it may surprise.

    Args:
        problems: By part of a pipeline, why it can't work with the trainer's class.

    Returns:
        The pipeline; off where no function runs on Guerdon, so that nothing can be hidden.

    Raises:
        RegistrationError: A part can't work with this trainer.
    """
    if not dispatchers:
        if pipeline != PRESETS["off"]:
            warnings.warn(
                f"pipeline={_as_written(pipeline)} has nothing to hide: Guerdon runs none of the reward functions, all are "
                "reward models. The trainer goes on with pipeline='off'.",
                GuerdonWarning,
                stacklevel=3,
            )
        return PRESETS["off"]
    sizes = {"num_generations": trainer.num_generations}
    if getattr(trainer.args, "eval_strategy", "no") != "no":
        sizes["num_generations_eval"] = getattr(trainer, "num_generations_eval", None) or trainer.num_generations
    check_group_sizes(dispatchers, sizes)
    for part, problem in _PROBLEMS.items():
        without = replace(pipeline, **{part: getattr(PRESETS["off"], part)})
        reason = (problems or {}).get(part) or problem(trainer) if without != pipeline else None
        if reason is not None:
            raise RegistrationError(
                f"pipeline: {part} can't work with this trainer: {reason} Without {part}: pipeline={_as_written(without)}."
            )
    for warning in _warnings(pipeline, trainer, dispatchers):
        warnings.warn(warning, GuerdonWarning, stacklevel=4)
    return pipeline


def without_replays(pipeline: Pipeline, overrides: Sequence[type]) -> Pipeline:
    """Returns the pipeline less the parts that ask for rewards a second time, with stubs.

    Args:
        overrides: Classes that override `_calculate_rewards` in front of the pipeline. They would
            get the stubs.
    """
    if not overrides or not pipeline.defers:
        return pipeline
    left = replace(pipeline, mini_batch=False, lookahead=0)
    warnings.warn(
        f"pipeline={_as_written(pipeline)}: {overrides[0].__name__} overrides _calculate_rewards of a trainer with a pipeline, "
        "and mini_batch and lookahead would call it with stubs in place of the completions. The trainer goes on with "
        f"pipeline={_as_written(left)}. To have them, derive the class from TRL's trainer and make it with pipelined().",
        GuerdonWarning,
        stacklevel=3,
    )
    return left


def _as_written(pipeline: Pipeline) -> str:
    """Returns the option as a user would write it."""
    names = [name for name, preset in PRESETS.items() if preset == pipeline]
    return repr(names[0]) if names else repr(pipeline)


def _overlap_problem(trainer: Any) -> str | None:
    args = trainer.args
    if getattr(trainer, "rollout_func", None) is not None:
        return "rollout_func generates, and returns all completions at once."
    if getattr(trainer, "tools", None):
        return "with tools or environments a completion goes on, with the tools' results, after it first ends."
    if trainer.use_vllm and args.vllm_mode != "server":
        return f"vLLM with vllm_mode={args.vllm_mode!r} returns all completions at once: use vllm_mode='server'."
    if getattr(args, "use_transformers_continuous_batching", False):
        return "use_transformers_continuous_batching=True returns all completions at once."
    beams = getattr(getattr(trainer, "generation_config", None), "num_beams", 1) or 1
    if beams > 1:
        return f"with num_beams={beams} a completion is only known when the search ends."
    return None


def _mini_batch_problem(trainer: Any) -> str | None:
    args, size = trainer.args, trainer.num_generations
    local = args.per_device_train_batch_size * args.steps_per_generation
    if getattr(trainer, "normalize_advantages", False):
        return "normalize_advantages=True divides by the standard deviation of the whole batch, which is known last."
    if getattr(trainer, "scale_rewards", None) == "batch":
        return "scale_rewards='batch' divides by the standard deviation of the whole batch, which is known last: use 'group' or 'none'."
    if getattr(trainer, "multi_objective_aggregation", None) == "normalize_then_sum":
        return (
            "multi_objective_aggregation='normalize_then_sum' normalises over the whole batch, which is complete last: "
            "use 'sum_then_normalize'."
        )
    if local % size:
        return (
            f"groups are split over ranks: the {local} samples of a rank (per_device_train_batch_size * "
            f"steps_per_generation) are no multiple of num_generations={size}."
        )
    if args.steps_per_generation == 1:
        return (
            "a batch is trained on in one piece (steps_per_generation=1), so no part of it can start before the rest: "
            "raise steps_per_generation (or gradient_accumulation_steps), or use lookahead."
        )
    return None


def _lookahead_problem(trainer: Any) -> str | None:
    if trainer.accelerator.dataloader_config.dispatch_batches:
        return "with dispatch_batches=True only the first rank reads the data, so the others can't read ahead."
    if trainer.args.auto_find_batch_size:
        return "auto_find_batch_size=True restarts the run with another batch size."
    return None


_PROBLEMS: Final = {"overlap": _overlap_problem, "mini_batch": _mini_batch_problem, "lookahead": _lookahead_problem}


def _warnings(pipeline: Pipeline, trainer: Any, dispatchers: Sequence[Dispatcher]) -> Iterable[str]:
    """Yields surprises in a pipeline that works, each with what to do."""
    args = trainer.args
    yield from _whole_batch_functions(pipeline, dispatchers)
    if pipeline.mini_batch:
        yield from _other_gradients(trainer)
    if pipeline.lookahead and getattr(args, "sync_ref_model", False):
        yield "lookahead with sync_ref_model=True: the reference model's log-probabilities are as stale as the batch."
    cycle = args.steps_per_generation * trainer.num_iterations
    saves = str(getattr(args.save_strategy, "value", args.save_strategy)) == "steps" and args.save_steps >= 1
    if pipeline.defers and saves and int(args.save_steps) * args.gradient_accumulation_steps % cycle:
        yield (
            f"save_steps={args.save_steps} saves in the middle of a batch (of {cycle} micro-steps); a run resumed from there "
            "generates that batch again and trains on all of it, as TRL's own trainer does."
        )


def _other_gradients(trainer: Any) -> Iterable[str]:
    """Yields the settings for which a gradient depends on the rows that are trained on together."""
    args = trainer.args
    if args.gradient_accumulation_steps % args.steps_per_generation:
        yield (
            f"mini_batch with steps_per_generation={args.steps_per_generation}, which does not divide "
            f"gradient_accumulation_steps={args.gradient_accumulation_steps}: optimizer steps end in the middle of a batch, "
            "and the first steps on a batch see the groups that are scored fastest, which may be biased."
        )
    reasons = []
    if getattr(trainer, "loss_type", None) == "bnpo":
        reasons.append("loss_type='bnpo' divides by the tokens of a micro-step")
    if getattr(trainer, "top_entropy_quantile", 1.0) < 1.0:
        reasons.append(f"top_entropy_quantile={trainer.top_entropy_quantile} takes a quantile of a micro-step")
    if getattr(trainer, "_entropy_bonus_enabled", False):
        reasons.append("the entropy bonus is a mean over a micro-step")
    if getattr(trainer, "aux_loss_enabled", False):
        reasons.append("the router's auxiliary loss is a mean over a micro-step")
    if reasons:
        yield (
            f"mini_batch: {'; '.join(reasons)}, and with mini_batch a micro-step has the groups that were scored first, so the "
            "gradient differs a little from the one without."
        )


def _whole_batch_functions(pipeline: Pipeline, dispatchers: Sequence[Dispatcher]) -> Iterable[str]:
    """Names the functions that are called once a batch, after its last completion: no part of the
    batch has all its rewards before."""
    names = [spec.name for dispatcher in dispatchers for spec in dispatcher._specs if spec.shape == "batch"]
    parts = [part for part in ("overlap", "mini_batch") if getattr(pipeline, part)]
    if names and parts:
        several = len(names) > 1
        yield (
            f"{' and '.join(parts)} can't hide {'the reward functions' if several else 'reward function'} "
            f"{', '.join(map(repr, names))}: {'each is' if several else 'it is'} called once with the whole batch (TRL's "
            "contract), so no group is complete before that call ends. Where rows are independent, pass "
            f"reward({names[0]}, rowwise=True), or decorate {'them' if several else 'it'} with @reward(rowwise=True)."
        )
