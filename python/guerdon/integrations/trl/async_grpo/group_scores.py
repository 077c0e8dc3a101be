"""One group at a time through the dispatchers, in the shape in which TRL's async loop sums rewards.

A sample on which a function failed has no reward in any column, so the group's baseline leaves it
out. TRL sums columns with weight 1: it gets weighted values, while the logs show the raw ones. One
group is a small batch, so `ResultFailureRate` judges failures over the last groups together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from guerdon._batch.failures import any_cancelled
from guerdon._batch.trainer.column import RewardColumn
from guerdon._batch.trainer.context import ReportedFailures, TrainerContext, TrainerMemory, report_failures
from guerdon._batch.trainer.metrics import metrics_of
from guerdon.dispatcher import Dispatcher
from guerdon.errors import ClosedError, RewardFailureError
from guerdon.integrations.failure_rate import ResultFailureRate
from guerdon.integrations.trl.reward_funcs import dispatcher_of, dispatchers_of
from guerdon.results import RewardBatch


@dataclass(frozen=True)
class GroupScores:
    """One group's rewards.

    Attributes:
        raw: By column, one value per sample, None where there is none or a function failed on it.
        weighted: The same times the columns' weights.
        failed: Per sample, whether a function failed on it, so that it has no reward at all.
        metrics: For the trainer's log.
    """

    raw: list[list[float | None]]
    weighted: list[list[float | None]]
    failed: list[bool]
    metrics: dict[str, float]

    def fail(self, sample: int) -> None:
        """Takes one sample out of every column."""
        self.failed[sample] = True
        for column in (*self.raw, *self.weighted):
            column[sample] = None


current_scores: ContextVar[GroupScores] = ContextVar("guerdon_scored")
"""The rewards of the group that the running task scores."""


class ScoresColumn:
    """A reward function for TRL: gives one column of the group that the running task scores."""

    __name__: str

    def __init__(self, name: str, index: int) -> None:
        self.__name__ = name
        self._index = index

    async def __call__(self, **columns: Any) -> list[float | None]:
        return current_scores.get().weighted[self._index]


class GroupScorer:
    """Scores groups with the functions behind `columns`."""

    def __init__(self, columns: Sequence[RewardColumn]) -> None:
        self._columns = tuple(columns)
        self.dispatchers = dispatchers_of(columns)
        self._weights = [dispatcher_of(column).reward_weights[column.index] for column in columns]
        self._failure_rate = ResultFailureRate(self.dispatchers)
        self._reported: ReportedFailures = set()

    async def of(self, given: Mapping[str, Any], generations: int) -> GroupScores:
        """The rewards of one group.

        Args:
            given: Its columns by name, as TRL gives them to a reward function.
            generations: How many samples it has.

        Raises:
            DataError: The group can't be scored as it is.
            RewardFailureError: A function fails too often.
            ClosedError: A dispatcher was closed meanwhile.
        """
        results = await asyncio.gather(*(_score(each, given, generations) for each in self.dispatchers))
        by_dispatcher = {id(each): result for each, result in zip(self.dispatchers, results, strict=True)}
        for result in results:
            report_failures(result, self._reported)
        for result in results:
            self._failure_rate.add(result)
        failed = np.zeros(generations, dtype=bool)
        for result in results:
            if result.incomplete != "sum":
                failed |= result.failed_samples[0]
        raw, weighted = [], []
        for column, weight in zip(self._columns, self._weights, strict=True):
            result = by_dispatcher[id(column.dispatcher)]
            values = result.rewards[0, :, result.functions.index(column.__name__)].tolist()
            raw.append([None if out or math.isnan(v) else v for v, out in zip(values, failed.tolist(), strict=True)])
            weighted.append([None if value is None else weight * value for value in raw[-1]])
        metrics: dict[str, float] = {}
        for dispatcher, result in zip(self.dispatchers, results, strict=True):
            metrics.update((name, float(np.mean(values))) for name, values in result.metrics.items())
            metrics.update(metrics_of(result, dispatcher.options["log_metrics"]))
        return GroupScores(raw, weighted, failed.tolist(), metrics)


async def _score(dispatcher: Dispatcher, given: Mapping[str, Any], generations: int) -> RewardBatch:
    """One dispatcher's rewards of one group, however many failed."""
    held: list[Any] = []
    try:
        pending = dispatcher._trainer_batches.start_in(_GroupContext(generations), given, held)
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


class _GroupContext(TrainerContext):
    """The context of one group: how many completions it has."""

    def __init__(self, generations: int) -> None:
        super().__init__(TrainerMemory())
        self._generations = generations

    def group_size(self) -> int | None:
        return self._generations
