"""Who calls a dispatcher's columns: what a column asks of its caller, and what it tells it.

- H-1  A trainer imports nothing of ours: the integrations named in `INTEGRATIONS` are asked in turn whose call it is. They
       are loaded by name, when the first column is called, so that nothing here depends on them.
- H-2  What functions recorded is logged on the caller's thread, function by function in the order of the list, as if
       the trainer had called them itself. A column that a function logged once is logged in every later batch, None
       where there is nothing: the trainer's table needs columns of equal length, and an old value must not stand beside
       a new sample.
- H-3  The first failure of each kind of each function is told in words, once a trainer: a trainer itself says no more than
       that samples have no reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from guerdon.status import Status

if TYPE_CHECKING:
    from guerdon.results import RewardBatch

# Modules with ``trainer_of(given)``, which gives a `TrainerContext` class and the trainer behind a call, or None (H-1).
INTEGRATIONS = ("guerdon.integrations.trl.trainer_context",)

_FRACTIONS = {"timeout_frac": Status.TIMEOUT, "error_frac": Status.ERROR, "crashed_frac": Status.CRASHED}
_TIMES = ("run_p50_s", "run_p90_s", "run_p99_s", "queue_p50_s", "queue_p99_s")


@dataclass(frozen=True)
class TrainerFunctions:
    """The list of a dispatcher, as far as the caller of its columns has to do with it.

    Attributes:
        functions: What a trainer takes as its reward functions, in order: columns, and reward models as they are.
        columns: The columns among them.
        models: Names of the reward models.
        weights: One per function; None if the dispatcher was given none.
    """

    functions: tuple[object, ...]
    columns: tuple[object, ...]
    models: tuple[str, ...]
    weights: list[float] | None


ReportedFailures = set[tuple[str, Status]]  # functions and kinds of their failures


@dataclass
class TrainerMemory:
    """What a dispatcher remembers of one trainer."""

    checked: bool = False  # whether its reward weights are right; written by `TrainerContext.check`
    # By function the columns that it ever logged, in order; written by `TrainerContext.report`.
    extra: dict[str, dict[str, None]] = field(default_factory=dict)
    told: ReportedFailures = field(default_factory=set)  # written by `report_failures`


class TrainerContext:
    """The caller of a column. This one has no trainer behind it; an integration's knows its trainer."""

    def __init__(self, memory: TrainerMemory) -> None:
        self.memory = memory

    def group_size(self) -> int | None:
        """Completions per prompt, if the caller knows."""
        return None

    @property
    def ranks(self) -> int:
        """How many processes bring samples to the caller's batch."""
        return 1

    def others(self, trainer_functions: TrainerFunctions) -> list[str]:
        """Names of what the caller runs beside the dispatcher's functions."""
        return list(trainer_functions.models)

    def check(self, trainer_functions: TrainerFunctions) -> None:
        """Compares what the caller and the dispatcher were told.

        Raises:
            DataError: They don't agree.
        """

    def agree(self, error: Exception | None, result: RewardBatch | None) -> Exception | None:
        """The error that the caller's ranks raise together. Called for each batch, by every rank; `result` is the own batch."""
        return error

    def report(self, result: RewardBatch, given: Mapping[str, Any]) -> None:
        """Logs what the functions recorded, and how each of them fared (H-2)."""
        log_extra, log_metric = given.get("log_extra"), given.get("log_metric")
        for function, recorded in zip(result.functions, result.recorded, strict=True):
            if callable(log_extra):
                known = self.memory.extra.setdefault(function, {})
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
        if callable(log_metric):
            for name, value in metrics_of(result).items():
                log_metric(name, value)
            report_failures(result, self.memory.told)


def context_of(given: Mapping[str, Any], memories: MutableMapping[Any, TrainerMemory]) -> TrainerContext:
    """Who called a column with these arguments; `memories` holds one `TrainerMemory` a trainer."""
    for name in INTEGRATIONS:
        found = import_module(name).trainer_of(given)
        if found is not None:
            kind, trainer = found
            memory = memories.get(trainer)
            if memory is None:
                memory = memories[trainer] = TrainerMemory()
            context: TrainerContext = kind(memory, trainer)
            return context
    return TrainerContext(TrainerMemory())


def report_failures(result: RewardBatch, told: ReportedFailures) -> None:
    """Tells the first failure of each kind of each function (H-3); `told` holds what was told, and gets what is told now."""
    for failure in result.failures():
        key = failure.function, failure.status
        if key not in told:
            told.add(key)
            import logging  # not by `import guerdon`

            logging.getLogger("guerdon").warning(
                "reward function %s. This is told once; how many there are is in the trainer's log, guerdon/%s/…_frac.",
                failure,
                failure.function,
            )


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
