"""Decides if rank 0 scores for all ranks, and which functions are called on each sample's own rank.

Nothing here imports torch or trl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from guerdon._system.cpu_count import allowed_cores, host_cores
from guerdon._system.launcher import ranks_on_host, world_size

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon.dispatcher import Dispatcher
    from guerdon.integrations.trl.pipeline.options import Pipeline


def rank_0_has_all(pipeline: Pipeline, trainer: Any) -> bool:
    """Returns whether the completions of all ranks are on rank 0 first, and it is to score them:
    TRL asks a vLLM server from there."""
    asked = pipeline.overlap and pipeline.rank_0_scores
    return bool(asked and trainer.use_vllm and trainer.accelerator.num_processes > 1)


def reason_to_stay(dispatcher: Dispatcher) -> str | None:
    """Why the functions of a dispatcher, which share a batch, are called on each sample's own rank;
    None if rank 0 can call them for all."""
    cluster = dispatcher.options["cluster"]
    return next(filter(None, (_reason(spec, cluster) for spec in dispatcher._specs)), None)


def stays(names: Sequence[str], reason: str | None) -> str:
    """The warning about a dispatcher whose functions stay."""
    several = len(names) > 1
    return (
        f"overlap: rank 0 does not score for all ranks with {', '.join(map(repr, names))}, because {reason}. Each rank calls "
        f"{'them' if several else 'it'} for its own samples, from the end of the generation on (rank 0 earlier)."
        + (" Functions that stay are best in a dispatcher of their own." if several else "")
    )


def _reason(spec: FunctionSpec, cluster: object) -> str | None:
    if spec.shape == "batch":
        return (
            f"{spec.name!r} is called once with all samples of its rank (TRL's contract): if its rows are independent, pass "
            f"reward({spec.name}, rowwise=True)"
        )
    if spec.node is not None and cluster is not None and cluster != "host":
        return None
    if spec.lane == "thread":
        return f"{spec.name!r} runs in a thread of its rank's process, on what lives there"
    if not spec.in_workers:
        return None
    if cluster is not None and cluster != "host":  # nodes work for all ranks
        return None
    if ranks_on_host() < world_size():
        return (
            f"{spec.name!r} runs in workers of its rank's host, which are idle elsewhere: Dispatcher(cluster=guerdon.Ray()) "
            "has the workers of all hosts"
        )
    if cluster is None and len(host_cores()) > len(allowed_cores()):
        return (
            f"{spec.name!r} runs on the cores that its rank is bound to: Dispatcher(cluster='host') has the cores of all "
            "ranks"
        )
    return None
