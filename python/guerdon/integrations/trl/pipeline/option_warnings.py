"""Warnings about surprises in a pipeline that works: reported once, when the trainer is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher
    from guerdon.integrations.trl.pipeline.options import Pipeline


def pipeline_warnings(pipeline: Pipeline, trainer: Any, dispatchers: tuple[Dispatcher, ...]) -> Iterable[str]:
    """Sentences, each with what to do."""
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


def _whole_batch_functions(pipeline: Pipeline, dispatchers: tuple[Dispatcher, ...]) -> Iterable[str]:
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
