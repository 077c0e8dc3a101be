"""The batches that trainers start by calling columns.

A trainer calls its functions one after another, each with the same lists. The first column called
with a batch starts all functions on it, and raises or logs its failures; the others only collect.

- column-1  A batch is identified by the identity of its lists, which are kept alive while it is
  open. It ends when every column was collected, or one is called again with the same lists
  (refilled).
- column-2  A sample that can't be scored is None in every column.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon._batch.failures import any_cancelled
from guerdon._batch.pending import OpenBatch, PendingBatch
from guerdon._batch.trainer.column import RewardList
from guerdon._batch.trainer.context import TrainerContext, TrainerMemory, context_of
from guerdon.errors import ClosedError, GuerdonError, GuerdonWarning, RewardFailureError

if TYPE_CHECKING:
    from guerdon._batch.appending import Appender
    from guerdon._batch.engine_source import EngineSource
    from guerdon._batch.failures import BatchFailures
    from guerdon._batch.result_builder import ResultBuilder
    from guerdon._batch.submission import Submitter
    from guerdon._batch.trainer.metrics import LogMetrics
    from guerdon._native import Batch
    from guerdon.results import RewardBatch

MOST_OPEN = 64

Key = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TrainerBatch:
    """A batch that a trainer started.

    Attributes:
        context: Who started it.
        arguments: Of the call, as a column gets them.
        pending: The batch; an `OpenBatch` if its samples come one after another.
    """

    context: TrainerContext
    arguments: Mapping[str, Any]
    pending: PendingBatch


@dataclass
class _UncollectedBatch:
    """A batch that not every column has collected."""

    lists: list[Any]  # kept alive so that their identity stays theirs (column-1)
    pending: PendingBatch
    collected: set[int] = field(default_factory=set)  # under the lock of `TrainerBatches`


class TrainerBatches:
    """The batches that trainers start on one dispatcher, including the open batches of its columns.

    Args:
        owner: The dispatcher, which its columns and batches keep alive.
        engine: Its engine.
        submitter: Takes the batches.
        builder: Makes their results.
        rewards: The dispatcher's list.
        log_metrics: What a trainer's log gets of each function.
    """

    def __init__(
        self,
        owner: object,
        engine: EngineSource,
        submitter: Submitter,
        builder: ResultBuilder,
        rewards: RewardList,
        log_metrics: LogMetrics,
    ) -> None:
        self._owner = weakref.ref(owner)
        self._engine = engine
        self._submitter = submitter
        self._builder = builder
        self._rewards = rewards
        self._log_metrics = log_metrics
        self._lock = threading.Lock()
        # oldest first; under the lock
        self._open: OrderedDict[Key, _UncollectedBatch] = OrderedDict()
        # By trainer; under the lock.
        self._memories: weakref.WeakKeyDictionary[Any, TrainerMemory] = weakref.WeakKeyDictionary()
        self._warned_of_others = False
        self._warned_of_zeros = False  # for callers without a trainer; under the lock
        _alive.add(self)

    def collect(self, function: int, arguments: Mapping[str, Any]) -> list[float | None]:
        """The column of `function` for the batch with these lists; starts the batch if it isn't
        open."""
        started: list[Batch] = []
        try:
            return self._collect(function, arguments, started)
        except Exception:
            raise
        # Ctrl-C, wherever it hits: nobody will collect the columns of this batch
        except BaseException:
            self._drop(started)
            raise

    def _collect(self, function: int, arguments: Mapping[str, Any], started: list[Batch]) -> list[float | None]:
        context = self._context(arguments)
        key = _key(arguments)
        try:
            with self._lock:
                batch = self._open.get(key)
                first = batch is None or function in batch.collected
                if batch is None or first:
                    self._open.pop(key, None)
                    pending = self._submit(context, arguments, started)
                    batch = self._open[key] = _UncollectedBatch(list(_lists(arguments).values()), pending)
                batch.collected.add(function)
                if len(batch.collected) == len(self._builder.specs):
                    del self._open[key]
                released = self._release()
        except Exception as error:
            raise context.agree(error, None) or error from None
        if released:
            _warn(
                f"more than {MOST_OPEN} batches have columns that were never collected; the oldest was released. Call "
                "every column of dispatcher.reward_funcs for each batch, or use dispatcher.score()."
            )
        if first:
            if context.known:  # before anything is trained on
                self._warn_of_zeros(context)
            result = self.complete(TrainerBatch(context, arguments, batch.pending))
            if not context.known and bool(result.unscorable.any()):
                self._warn_of_zeros(context)
            self._warn_of_others(result, context)
        else:
            result = self._follow(batch)
        return _column(result, function)

    def start(self, arguments: Mapping[str, Any], started: list[Batch]) -> TrainerBatch:
        """Starts all functions on a batch whose columns nobody will call; `complete` ends it.

        Args:
            arguments: What a column would be called with, by name.
            started: The batch is appended as soon as it exists, for a caller who is interrupted.

        Raises:
            DataError: The batch can't be scored as it is.
        """
        context = self._context(arguments)
        return TrainerBatch(context, arguments, self._submit(context, arguments, started))

    def start_groups(
        self, arguments: Mapping[str, Any], started: list[Batch], group_size: int | None, ranks: int = 1
    ) -> PendingBatch:
        """Like `start`, for a caller that knows the size of groups and completes the batch."""
        batch = self._submitter.submit_from_trainer(started, arguments, group_size, ranks)
        return PendingBatch(self._owner(), batch, self._builder)

    def open(self, arguments: Mapping[str, Any], samples: int, started: list[Batch]) -> tuple[TrainerBatch, Appender]:
        """`start` for a batch whose samples come one after another, by the appender.

        Args:
            arguments: What is the same for all samples: ``trainer_state``, ``log_extra``,
                ``log_metric``.
            samples: How many there will be on each rank.
        """
        context = self._context(arguments)
        context.check_weights(self._rewards)
        batch, appender = self._submitter.open_from_trainer(
            started, arguments.get("trainer_state"), samples, context.group_size(), context.ranks
        )
        pending = OpenBatch(self._owner(), batch, self._builder, appender)
        return TrainerBatch(context, arguments, pending), appender

    def complete(self, batch: TrainerBatch) -> RewardBatch:
        """Waits for a batch, and raises or logs its failures.

        Raises:
            RewardFailureError: A function failed on more samples than allowed, here or on another
                rank.
            ClosedError: The dispatcher was closed meanwhile.
        """
        result: RewardBatch | None = None
        failures: BatchFailures | None = None
        error: Exception | None = None
        try:
            batch.pending.wait()
            result = batch.pending._complete()
            self._refuse_closed(result)
            failures, message = self._builder.count(result)
            if message is not None:
                error = RewardFailureError(message, result)
        except Exception as unforeseen:
            error = unforeseen
        error = self._judge(batch.context, error, failures, result)
        if error is not None or result is None:
            try:
                raise error or GuerdonError("a batch ended without a result")
            finally:
                # Otherwise the error, its traceback and the batch hold each other until Python's
                # collector runs.
                del error
        batch.context.log(result, batch.arguments, self._log_metrics)
        return result

    def complete_without_rows(self, arguments: Mapping[str, Any]) -> None:
        """Takes part for a rank without samples when the others `complete` a batch. Collective.

        Raises:
            RewardFailureError: A function fails too often.
        """
        error = self._judge(self._context(arguments), None, None, None)
        if error is not None:
            raise error

    def forget(self) -> None:
        """Runs in a forked child: the open batches are the parent's."""
        self._builder.failure_rate.after_fork()
        self._lock = threading.Lock()
        self._open = OrderedDict()

    def _context(self, arguments: Mapping[str, Any]) -> TrainerContext:
        with self._lock:
            return context_of(arguments, self._memories)

    def _judge(
        self,
        context: TrainerContext,
        error: Exception | None,
        failures: BatchFailures | None,
        result: RewardBatch | None,
    ) -> Exception | None:
        """The error that all ranks raise, if one has one, or if functions fail too often over all
        of them."""
        error, every = context.exchange(error, failures, result)
        if error is not None:
            return error
        rate = self._builder.failure_rate
        if context.known:  # a record for each trainer, so that all ranks have the same
            with self._lock:
                rate = context.memory.failure_rate = context.memory.failure_rate or self._builder.new_failure_rate()
        message = rate.add(every)
        return None if message is None else RewardFailureError(message, result)

    def _submit(self, context: TrainerContext, arguments: Mapping[str, Any], started: list[Batch]) -> PendingBatch:
        context.check_weights(self._rewards)
        return self.start_groups(arguments, started, context.group_size(), context.ranks)

    def _drop(self, started: list[Batch]) -> None:
        """Ends the batch that this call started, if it did."""
        with self._lock:
            for key, batch in list(self._open.items()):
                if batch.pending._batch in started:
                    del self._open[key]
                    batch.pending._interrupt()
        for one in started:
            one.cancel("interrupted")

    def _release(self) -> bool:
        if len(self._open) <= MOST_OPEN:
            return False
        self._open.popitem(last=False)
        return True

    def _follow(self, batch: _UncollectedBatch) -> RewardBatch:
        batch.pending.wait()
        if batch.pending._interrupted:
            raise GuerdonError(
                "this batch was interrupted while another column waited for it. To score it again, call the columns "
                "with it again."
            )
        result = batch.pending._complete()
        self._refuse_closed(result)
        return result

    def _refuse_closed(self, result: RewardBatch) -> None:
        if self._engine.closed and any_cancelled(result):
            raise ClosedError(
                "the dispatcher was closed while this batch was scored. Close it when no batch is under way."
            )

    def _warn_of_zeros(self, context: TrainerContext) -> None:
        """Warns, once a trainer, where a sample that has no reward may become one with the reward
        0."""
        dropped = any(spec.policy.on_failure == "nan" for spec in self._builder.specs)
        caller = context.counts_failures() if dropped and self._builder.incomplete == "drop" else None
        if caller is None:
            return
        with self._lock:
            warned = context.memory.warned_of_zeros if context.known else self._warned_of_zeros
            if context.known:
                context.memory.warned_of_zeros = True
            else:
                self._warned_of_zeros = True
        if not warned:
            _warn(
                f"{caller} is not known to leave out samples that have no reward: it may train on them as if their reward "
                "were 0. A sample on which a function failed (a judge that timed out) gets no reward. Choose what it gets "
                "before you train: Dispatcher(incomplete='sum') for the sum of the other functions, or on_failure= of a "
                "function for a number of your own, 'abstain' or 'raise'. The GRPOTrainer and RLOOTrainer of TRL 1.6 and "
                "later leave such samples out."
            )

    def _warn_of_others(self, result: RewardBatch, context: TrainerContext) -> None:
        """Warns, once, where a sample is left out here and still counted by other functions of the
        trainer."""
        if self._warned_of_others or result.incomplete == "sum" or not bool(result.failed_samples.any()):
            return
        others = context.other_functions(self._rewards)
        if others:
            self._warned_of_others = True
            _warn(
                "samples with a failed reward function are left out of every column of this dispatcher, but the "
                f"trainer itself runs {', '.join(others)} and still counts it for them. Put all reward functions into one "
                "dispatcher where you can."
            )


# All existing `TrainerBatches`, for `forget`.
_alive: weakref.WeakSet[TrainerBatches] = weakref.WeakSet()


def _after_fork() -> None:
    for batches in list(_alive):
        batches.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _key(arguments: Mapping[str, Any]) -> Key:
    """The identity of every list of the arguments (column-1)."""
    return tuple(sorted((name, id(values)) for name, values in _lists(arguments).items()))


def _lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in arguments.items() if hasattr(type(v), "__len__") and not isinstance(v, str)}


def _column(result: RewardBatch, function: int) -> list[float | None]:
    """One function's rewards, None for samples without one or that can't be scored (column-2)."""
    values = result.rewards[:, :, function].ravel()
    empty = (result.unscorable.ravel() | (values != values)).tolist()
    return [None if nothing else value for value, nothing in zip(values.tolist(), empty, strict=True)]


def _warn(message: str) -> None:
    warnings.warn(message, GuerdonWarning, stacklevel=5)
