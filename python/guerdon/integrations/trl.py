"""TRL's trainers, as the columns of a dispatcher meet them: through the arguments of a call, unmodified.

Nothing here imports trl or torch. The trainer is found behind the bound ``log_extra`` and ``log_metric`` that it gives
its reward functions, torch.distributed only if the trainer has it running.

- L-1  The group size is the trainer's own: its training value while its model trains, else its evaluation value.
- L-2  What functions recorded is logged on the caller's thread, function by function in the order of the list, as if
       the trainer had called them itself. A column that a function logged once is logged in every later batch, None
       where there is nothing: the trainer's table needs columns of equal length, and an old value must not stand beside
       a new sample.
- L-3  Ranks agree before one of them raises, so that all raise the same error or none does, and no rank waits in a
       collective for one that has left. Only on the main thread, where the trainer's own collectives run.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon.errors import DataError, GuerdonError, RewardFailureError
from guerdon.status import Status

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher
    from guerdon.result import RewardBatch

_FRACTIONS = {"timeout_frac": Status.TIMEOUT, "error_frac": Status.ERROR, "crashed_frac": Status.CRASHED}
_TIMES = ("run_p50_s", "run_p90_s", "run_p99_s", "queue_p50_s", "queue_p99_s")


@dataclass
class Memory:
    """What a dispatcher remembers of one trainer."""

    checked: bool = False  # whether its reward weights are right; written by `Host.check`
    # By function the columns that it ever logged, in order; written by `Host.report`.
    extra: dict[str, dict[str, None]] = field(default_factory=dict)


class Host:
    """The caller of a column: a trainer, or somebody without one.

    Args:
        trainer: The trainer, None if there is none behind the call.
    """

    def __init__(self, trainer: Any, memory: Memory) -> None:
        self._trainer = trainer
        self._memory = memory

    def group_size(self) -> int | None:
        """Completions per prompt in the trainer's current mode (L-1); None without a trainer."""
        trainer = self._trainer
        if trainer is None:
            return None
        size = trainer.num_generations
        if not getattr(getattr(trainer, "model", None), "training", True):
            size = getattr(trainer, "num_generations_eval", None) or size
        return int(size)

    @property
    def ranks(self) -> int:
        """How many processes bring samples to the trainer's batch."""
        dist = _distributed() if self._trainer is not None else None
        return 1 if dist is None else int(dist.get_world_size())

    def others(self, dispatcher: Dispatcher) -> list[str]:
        """Names of what the trainer runs beside the dispatcher's functions: reward models, environments' own
        rewards."""
        trainer = self._trainer
        if trainer is None:
            return list(dispatcher.reward_models)
        names = getattr(trainer, "reward_func_names", [type(one).__name__ for one in trainer.reward_funcs])
        pairs = zip(trainer.reward_funcs, names, strict=False)
        return [name for one, name in pairs if getattr(one, "dispatcher", None) is not dispatcher]

    def check(self, dispatcher: Dispatcher) -> None:
        """Compares the weights, once a trainer.

        Raises:
            DataError: The dispatcher was given weights and the trainer sums with others.
        """
        trainer, given = self._trainer, dispatcher.given_weights
        if trainer is None or self._memory.checked:
            return
        functions, theirs = getattr(trainer, "reward_funcs", None), getattr(trainer, "reward_weights", None)
        if given is not None and theirs is not None and _just_these(functions, dispatcher):
            import numpy as np

            weights = [float(weight) for weight in theirs]
            if not np.array_equal(np.asarray(weights, np.float32), np.asarray(given, np.float32)):
                raise DataError(
                    f"the trainer weighs its reward functions {weights}, the dispatcher was given weights={given}. "
                    "Pass reward_weights=dispatcher.weights to the trainer's config, or give the dispatcher no weights."
                )
        self._memory.checked = True

    def agree(self, error: Exception | None, result: RewardBatch | None) -> Exception | None:
        """The error that all ranks raise: the first rank's that has one (L-3). Called by every rank for each batch."""
        dist = _distributed() if self._trainer is not None else None
        if dist is None or threading.current_thread() is not threading.main_thread():
            return error
        mine = None if error is None else (_kind(error), str(error))
        every: list[tuple[type[Exception], str] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        for rank, one in enumerate(every):
            if one is not None:
                kind, message = one
                text = f"rank {rank}: {message}"
                return RewardFailureError(text, result) if kind is RewardFailureError else kind(text)
        return None

    def report(self, result: RewardBatch, given: Mapping[str, Any]) -> None:
        """Logs what the functions recorded, and how each of them fared (L-2)."""
        self._replay(result, given.get("log_extra"), given.get("log_metric"))
        log_metric = given.get("log_metric")
        if callable(log_metric):
            for name, value in metrics_of(result).items():
                log_metric(name, value)

    def _replay(self, result: RewardBatch, log_extra: Any, log_metric: Any) -> None:
        for function, recorded in zip(result.functions, result.recorded, strict=True):
            if callable(log_extra):
                known = self._memory.extra.setdefault(function, {})
                now = {column for column, _ in recorded.extra}
                for column, values in recorded.extra:
                    known.setdefault(column)
                    log_extra(column, values)
                for column in known:
                    if column not in now:
                        log_extra(column, [None] * len(result))
            if callable(log_metric):
                for name, value in recorded.metrics:
                    log_metric(name, value)


def host_of(given: Mapping[str, Any], memories: MutableMapping[Any, Memory]) -> Host:
    """Who called a column with these arguments; `memories` holds one `Memory` a trainer."""
    for name in ("log_extra", "log_metric"):
        trainer = getattr(given.get(name), "__self__", None)
        if trainer is not None and hasattr(trainer, "num_generations") and hasattr(trainer, "reward_funcs"):
            memory = memories.get(trainer)
            if memory is None:
                memory = memories[trainer] = Memory()
            return Host(trainer, memory)
    return Host(None, Memory())


def metrics_of(result: RewardBatch) -> dict[str, float]:
    """How each function fared in a batch, as ``guerdon/<name>/…``: fractions of the samples, and seconds.

    Times that nothing was measured for are left out.
    """
    failed = Counter((failure.function, failure.status) for failure in result.failures())
    metrics: dict[str, float] = {}
    samples = len(result)
    for name in result.functions:
        metrics[f"guerdon/{name}/failed_frac"] = sum(failed[name, status] for status in Status) / samples
        for key, status in _FRACTIONS.items():
            metrics[f"guerdon/{name}/{key}"] = failed[name, status] / samples
        timings = result.timings[name]
        metrics.update((f"guerdon/{name}/{key}", timings[key]) for key in _TIMES if timings[key] == timings[key])
    return metrics


def _just_these(functions: Any, dispatcher: Dispatcher) -> bool:
    """Whether the trainer's functions are the dispatcher's and nothing else; it may have loaded a model in the place of
    its name."""
    ours = list(dispatcher)
    if not isinstance(functions, list) or len(functions) != len(ours):
        return False
    pairs = zip(functions, ours, strict=True)
    return all(theirs is own for theirs, own in pairs if hasattr(own, "dispatcher"))


def _distributed() -> Any:
    """torch.distributed, if more than one process runs in it; never imports it."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    return dist


def _kind(error: Exception) -> type[Exception]:
    """A class that every rank has, and that takes just a message."""
    return type(error) if isinstance(error, GuerdonError) else GuerdonError
