"""One group at a time through the dispatchers, in the shape in which TRL's async loop sums rewards.

A sample on which a function failed has no reward in any column, so the group's baseline leaves it
out. TRL sums columns with weight 1: it gets weighted values, while the logs show the raw ones. One
group is a small batch, so `ResultFailureRate` judges failures over the last groups together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon._batch.failures import any_cancelled
from guerdon._batch.trainer.column import RewardColumn
from guerdon._batch.trainer.context import ReportedFailures, report_failures
from guerdon._batch.trainer.metrics import metrics_of
from guerdon.dispatcher import Dispatcher
from guerdon.errors import ClosedError, RewardFailureError
from guerdon.integrations.failure_rate import ResultFailureRate
from guerdon.integrations.trl.reward_funcs import dispatcher_of, dispatchers_of
from guerdon.results import RewardBatch

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass
class GroupScores:
    """One group's rewards.

    Attributes:
        failed: Per sample, whether a function failed on it, so that it has no reward at all.
        columns: One value per sample in each, NaN where there is none or a function failed on it.
        weights: One a column.
        metrics: For the trainer's log.
    """

    failed: NDArray[np.bool_]
    columns: list[NDArray[np.float64]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, values: ArrayLike, weight: float = 1.0) -> None:
        """Adds a column."""
        self.columns.append(np.where(self.failed, np.nan, np.asarray(values, np.float64)))
        self.weights.append(weight)

    def fail(self, sample: int) -> None:
        """Takes one sample out of every column."""
        self.failed[sample] = True
        for column in self.columns:
            column[sample] = np.nan


current_scores: ContextVar[GroupScores] = ContextVar("guerdon_scored")
"""The rewards of the group that the running task scores."""


async def weighted_column(index: int, /, **_: Any) -> list[float]:
    """Returns one column of the group that the running task scores: a reward function for TRL."""
    scores = current_scores.get()
    values: list[float] = (scores.weights[index] * scores.columns[index]).tolist()
    return values


class GroupScorer:
    """Scores groups with the functions behind `columns`."""

    def __init__(self, columns: Sequence[RewardColumn]) -> None:
        self._columns = tuple(columns)
        self.dispatchers = dispatchers_of(columns)
        self._weights = [dispatcher_of(column).reward_weights[column.index] for column in columns]
        self._failure_rate = ResultFailureRate(self.dispatchers)
        self._reported: ReportedFailures = set()

    async def of(self, given: Mapping[str, Any], generations: int) -> GroupScores:
        """The rewards of one group, from its columns as TRL gives them to a reward function.

        Raises:
            DataError: The group can't be scored as it is.
            RewardFailureError: A function fails too often.
            ClosedError: A dispatcher was closed meanwhile.
        """
        scored = await asyncio.gather(*(_score(each, given, generations) for each in self.dispatchers))
        results = dict(zip(self.dispatchers, scored, strict=True))
        for result in scored:
            report_failures(result, self._reported)
        for result in scored:
            self._failure_rate.add(result)
        failed = np.zeros(generations, dtype=bool)
        for result in scored:
            if result.incomplete != "sum":
                failed |= result.failed_samples[0]
        scores = GroupScores(failed)
        for column, weight in zip(self._columns, self._weights, strict=True):
            result = results[dispatcher_of(column)]
            scores.add(result.rewards[0, :, result.functions.index(column.__name__)], weight)
        for dispatcher, result in results.items():
            scores.metrics.update((name, float(np.mean(values))) for name, values in result.metrics.items())
            scores.metrics.update(metrics_of(result, dispatcher.options["log_metrics"]))
        return scores


async def _score(dispatcher: Dispatcher, given: Mapping[str, Any], generations: int) -> RewardBatch:
    """One dispatcher's rewards of one group, however many failed."""
    held: list[Any] = []
    try:
        pending = dispatcher._trainer_batches.start_groups(given, held, generations)
        try:
            result = await pending.aresult()
        except RewardFailureError as error:  # in this group; `ResultFailureRate` judges
            if error.result is None:
                raise
            result = error.result
    except BaseException:
        for batch in held:
            batch.cancel("interrupted")
        raise
    if dispatcher.closed and any_cancelled(result):
        raise ClosedError("the dispatcher was closed while this group was scored. Close it after training.")
    return result
