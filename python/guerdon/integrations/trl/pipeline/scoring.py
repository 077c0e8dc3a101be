"""The rewards of one generated batch on one rank: started at once, taken by group or as a whole.

The columns of all dispatchers start together; reward models and other functions stay the trainer's.
A group is handed out once, when all dispatchers have completed it, first come, first out. A sample
on which a function failed has no value in any column, unless its dispatcher says
``incomplete="sum"``. Waiting never holds the GIL, and is always counted in `waited_s`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon._batch.trainer.batches import TrainerBatch
from guerdon._batch.trainer.column import RewardColumn
from guerdon.errors import ClosedError, RewardFailureError
from guerdon.integrations.trl.pipeline.rank_exchange import RankExchange
from guerdon.integrations.trl.reward_funcs import dispatchers_of
from guerdon.results.status import Status
from guerdon.results.totals import failed_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guerdon._batch.appending import Appender
    from guerdon._native import Batch
    from guerdon.dispatcher import Dispatcher


class BatchScoring:
    """The rewards of one batch: of a rank's samples, in groups of `size`.

    Attributes:
        appenders: Add the samples of a batch that was opened.
        values: ``[samples, functions]``; the trainer writes its own `others`, each dispatcher's are
            written as they complete.
        completed: Whether `complete` has returned, or the batch was given up.
        failures: The error with which it was.
        pending_logs: What the trainer had still to log when its functions had recorded nothing,
            where an override may need that again.
        waited_s: Seconds that the trainer waited for these rewards.
        reward_s: Seconds from the submission of the first sample to the last outcome; 0 until all
            are complete.
    """

    def __init__(
        self,
        functions: Sequence[object],
        samples: int,
        size: int,
        exchange: RankExchange | None = None,
    ) -> None:
        self._functions = tuple(functions)
        self._dispatchers = dispatchers_of(self._functions)
        self._samples = samples
        self._size = size
        self.exchange = exchange  # of rows with other ranks, where groups lie on several
        # Names the trainer to dispatchers; written where rows are exchanged.
        self._given: Mapping[str, Any] = {}
        self.values: NDArray[np.float32] = np.full((samples, len(self._functions)), np.nan, dtype=np.float32)
        self._failed: NDArray[np.bool_] = np.zeros(samples, dtype=np.bool_)
        self._started: dict[Dispatcher, TrainerBatch] = {}
        self.appenders: list[Appender] = []
        self._given_out: set[int] = set()
        self.failures: list[RewardFailureError] = []
        self.pending_logs: Mapping[str, Mapping[str, list[Any]]] = {}
        self.completed = False
        self.held: list[Batch] = []
        self.waited_s = 0.0
        self.reward_s = 0.0

    def begin(self, given: Mapping[str, Any]) -> None:
        """Starts the functions of all dispatchers.

        Args:
            given: What the trainer would call a function with, by name.

        Raises:
            DataError: The batch can't be scored as it is.
        """
        if self.exchange is not None:
            by_row = {name: values for name, values in given.items() if isinstance(values, list)}
            self._given = given = {**given, **self.exchange.columns(by_row)}
            if self.exchange.scored == 0:
                return
        for dispatcher in self._dispatchers:
            self._started[dispatcher] = dispatcher._trainer_batches.start(given, self.held)

    def open(self, given: Mapping[str, Any]) -> None:
        """Begins the batch without samples: they come by the `appenders`, which are finished then.

        Args:
            given: What is the same for all of them, by name.
        """
        for dispatcher in self._dispatchers:
            self._started[dispatcher], appender = dispatcher._trainer_batches.open(given, self._samples, self.held)
            self.appenders.append(appender)

    @property
    def others(self) -> list[int]:
        """Places in the list of what the trainer runs itself."""
        return [place for place, one in enumerate(self._functions) if not isinstance(one, RewardColumn)]

    def next_group(self) -> int:
        """Waits for a group that was not handed out yet.

        Raises:
            ClosedError: A dispatcher was closed meanwhile.
        """
        started = time.monotonic()
        try:
            while not (new := self._new_groups()):
                under_way = [batch.pending for batch in self._started.values() if not batch.pending.done]
                if under_way:  # the one with the fewest groups most likely lacks the next one
                    min(under_way, key=lambda pending: len(pending.completed()))._wait_for_news(None)
        finally:
            self.waited_s += time.monotonic() - started
        group = new[0]
        self._given_out.add(group)
        rows = slice(group * self._size, (group + 1) * self._size)
        for dispatcher, batch in self._started.items():
            rewards, status = batch.pending._batch.group(group)
            if dispatcher.closed and bool((status == Status.CANCELLED).any()):
                raise ClosedError("the dispatcher was closed while this batch was scored. Close it after the training.")
            self._keep(dispatcher, rows, rewards, status)
        return group

    def _new_groups(self) -> list[int]:
        """Groups that are complete everywhere and were not handed out."""
        completed = [batch.pending.completed() for batch in self._started.values()]
        # The trainer calls functions itself where no dispatcher began.
        first, *others = completed or [list(range(self._samples // self._size))]
        common = set(first).intersection(*others).difference(self._given_out)
        return [group for group in first if group in common]

    def complete(self) -> None:
        """Waits for the whole batch; raises or logs its failures. Collective.

        Raises:
            RewardFailureError: A function failed on more samples than allowed, on any rank.
        """
        if self.completed:
            return
        for dispatcher in self._dispatchers:
            batch = self._started.get(dispatcher)
            if batch is not None:
                rewards, status = self._outcome(dispatcher, batch)
            else:  # all groups of this rank begin on others
                dispatcher._trainer_batches.complete_without_rows(self._given)
                count = len(dispatcher.names)
                rewards, status = np.empty((0, count), np.float32), np.empty((0, count), np.uint8)
            if self.exchange is not None:
                rewards, status = self.exchange.values(rewards), self.exchange.values(status)
            self._keep(dispatcher, slice(None), rewards, status)
        self.completed = True

    def _outcome(self, dispatcher: Dispatcher, batch: TrainerBatch) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        started = time.monotonic()
        try:
            batch.pending.wait()
        finally:
            self.waited_s += time.monotonic() - started
        result = dispatcher._trainer_batches.complete(batch)
        self.reward_s = max(self.reward_s, result.elapsed_s)
        count = len(result.functions)
        return result.rewards.reshape(-1, count), result.status.reshape(-1, count)

    def columns(self, rows: Sequence[int]) -> list[Callable[..., list[float | None]]]:
        """Returns for each function of the list one that gives the values of these rows, in TRL's
        contract.

        Only for rows whose group, or the whole batch, is complete.
        """
        values = self.values[rows]
        values[self._failed[rows]] = np.nan
        return [_column(values[:, place]) for place in range(len(self._functions))]

    def open_groups(self) -> int:
        """Groups that are not complete now."""
        most = 0
        for pending in (batch.pending for batch in self._started.values()):
            left = (pending.num_groups - len(pending.completed())) * pending._batch.num_generations
            most = max(most, -(-left // self._size))
        return most

    def give_up(self, *failures: RewardFailureError) -> None:
        """Ends a batch that is scored otherwise, or else fails with this error."""
        self.failures += failures
        self.completed = True
        self.cancel()

    def cancel(self) -> None:
        """Gives the batch up; complete parts stay."""
        for batch in self.held:
            batch.cancel("the trainer ended before this batch was trained on")

    def _keep(
        self, dispatcher: Dispatcher, rows: slice, rewards: NDArray[np.float32], status: NDArray[np.uint8]
    ) -> None:
        names = dispatcher.names
        for place, one in enumerate(self._functions):
            if isinstance(one, RewardColumn) and one.dispatcher is dispatcher:
                self.values[rows, place] = rewards[:, names.index(one.__name__)]
        if dispatcher.options["incomplete"] == "drop":
            self._failed[rows] |= failed_samples(rewards, status)


def _column(values: NDArray[np.float32]) -> Callable[..., list[float | None]]:
    known: list[float | None] = [None if value != value else value for value in values.tolist()]

    def column(**_: object) -> list[float | None]:
        return known

    return column
