"""The trainer that calls a dispatcher's columns: its requests, and the metrics logged to it.

- Trainers don't import our modules. `INTEGRATIONS` are imported by name when the first column is
  called, and each may recognise its trainer, so that nothing here depends on them.
- Recorded values are logged on the caller's thread, in the order of the list. A column logged once
  is logged for every later batch, with None for missing values: a trainer's table needs equal
  lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from guerdon._batch.trainer.metrics import LogMetrics, metrics_of
from guerdon._system.warning import warn
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon._batch.failure_rate import FailureRate
    from guerdon._batch.failures import BatchFailures
    from guerdon._batch.trainer.column import RewardList
    from guerdon.results import RewardBatch

# Modules with ``trainer_of(arguments)``: a `TrainerContext` class and the trainer behind a call, or
# None; and ``leaves_failures_out()``: whether callers without a trainer leave failed samples out.
INTEGRATIONS = ("guerdon.integrations.trl.trainer_context",)

# Most columns of one function in a trainer's table. The trainer keeps each for the whole run.
MOST_EXTRA = 256

ReportedFailures = set[tuple[str, Status]]  # functions and kinds of their failures


@dataclass
class TrainerMemory:
    """State that a dispatcher keeps for one trainer."""

    weights_checked: bool = False  # written by `TrainerContext.check_weights`
    warned_of_zeros: bool = False  # written by `TrainerBatches`, under its lock
    # By function the columns that it ever logged, in order; written by `TrainerContext.log`.
    extra: dict[str, dict[str, None]] = field(default_factory=dict)
    # Functions that recorded more names than that; written by `TrainerContext.log`.
    too_many_extra: set[str] = field(default_factory=set)
    reported: ReportedFailures = field(default_factory=set)  # written by `report_failures`
    # Of the batches that this trainer brought; written by `TrainerBatches`.
    failure_rate: FailureRate | None = None


class TrainerContext:
    """The caller of a column. This class is for callers without a trainer; integrations have
    subclasses for theirs.

    Attributes:
        known: Whether the caller was identified.
    """

    known = False

    def __init__(self, memory: TrainerMemory) -> None:
        self.memory = memory

    def group_size(self) -> int | None:
        """Completions per prompt, if the caller has them."""
        return None

    @property
    def ranks(self) -> int:
        """Returns the number of processes that bring samples to the caller's batch."""
        return 1

    def other_functions(self, rewards: RewardList) -> list[str]:
        """Names of the functions that the caller runs beside the dispatcher's."""
        return list(rewards.models)

    def counts_failures(self) -> str | None:
        """Returns the name of the caller if it may take a sample without any reward for one with
        the reward 0; None if it leaves such samples out."""
        leave_out = any(import_module(name).leaves_failures_out() for name in INTEGRATIONS)
        return None if leave_out else "what calls this dispatcher's columns"

    def check_weights(self, rewards: RewardList) -> None:
        """Compares the weights of the caller and of the dispatcher.

        Raises:
            DataError: They differ.
        """

    def agree(self, error: Exception | None, result: RewardBatch | None) -> Exception | None:
        """The error that all ranks raise together, each with its own `result`. Collective."""
        return self.exchange(error, None, result)[0]

    def exchange(
        self, error: Exception | None, failures: BatchFailures | None, result: RewardBatch | None
    ) -> tuple[Exception | None, list[BatchFailures | None]]:
        """Returns the error that all ranks raise together, or without one the failures of each
        rank. Called once for each batch by every rank, with its own."""
        return error, [failures]

    def log(self, result: RewardBatch, arguments: Mapping[str, Any], metrics: LogMetrics) -> None:
        """Logs what the functions recorded, and the metrics of each of them."""
        log_extra, log_metric = arguments.get("log_extra"), arguments.get("log_metric")
        for function, recorded in zip(result.functions, result._recorded, strict=True):
            if callable(log_extra):
                known = self.memory.extra.setdefault(function, {})
                now = {column for column, _ in recorded.extra}
                for column, values in recorded.extra:
                    if column in known or len(known) < MOST_EXTRA:
                        known.setdefault(column)
                        log_extra(column, values)
                    elif function not in self.memory.too_many_extra:
                        self.memory.too_many_extra.add(function)
                        warn(
                            f"reward function {function!r} records values under more than {MOST_EXTRA} names; the trainer's "
                            "table gets no column for the others. result.extra and the journal have them. "
                            "Use few names, and put what differs between samples into the values."
                        )
                for column in known:
                    if column not in now:
                        log_extra(column, [None] * len(result))
            if callable(log_metric):
                for name, value in recorded.metrics:
                    log_metric(name, value)
        if callable(log_metric):
            for name, value in metrics_of(result, metrics).items():
                log_metric(name, value)
            report_failures(result, self.memory.reported)


def context_of(arguments: Mapping[str, Any], memories: MutableMapping[Any, TrainerMemory]) -> TrainerContext:
    """Returns the caller of a column with these arguments; `memories` holds one `TrainerMemory` a
    trainer."""
    for name in INTEGRATIONS:
        found = import_module(name).trainer_of(arguments)
        if found is not None:
            kind, trainer = found
            memory = memories.get(trainer)
            if memory is None:
                memory = memories[trainer] = TrainerMemory()
            context: TrainerContext = kind(memory, trainer)
            return context
    return TrainerContext(TrainerMemory())


def report_failures(result: RewardBatch, reported: ReportedFailures) -> None:
    """Logs the first failure of each kind of each function, once a trainer: the trainer itself
    reports only that samples have no reward."""
    for failure in result.failures():
        key = failure.function, failure.status
        if key not in reported:
            reported.add(key)
            import logging  # not by `import guerdon`

            logging.getLogger("guerdon").warning(
                "reward function %s. Further ones are not logged; their rate is in the trainer's log, guerdon/%s/…_frac.",
                failure,
                failure.function,
            )
