"""One group at a time through the dispatchers, in the shape in which TRL's asynchronous loop sums rewards.

- A-1  A sample on which a function failed has no reward in any column, so the group's baseline leaves it out.
- A-2  TRL sums columns with weight 1: what it gets is weighed, what is logged is not.
- A-3  One group is a small batch: whether a function fails too often is judged over the last groups together, except for
       ``on_failure="raise"``.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from guerdon._trainer.column import RewardColumn
from guerdon._trainer.context import ReportedFailures, TrainerContext, TrainerMemory, metrics_of, report_failures
from guerdon.dispatcher import Dispatcher
from guerdon.errors import ClosedError, RewardFailureError
from guerdon.integrations.trl.reward_funcs import dispatcher_of, dispatchers_of
from guerdon.results import Failure, RewardBatch
from guerdon.status import Status

WINDOW: Final = 256
"""Samples over which failures are counted."""
FEWEST: Final = 32
"""Samples before which nothing is judged."""


@dataclass(frozen=True)
class Scored:
    """One group's rewards.

    Attributes:
        raw: By column, one value per sample: unweighed, None where there is none or a function failed on the sample.
        weighed: The same times the columns' weights.
        failed: Per sample, whether a function failed on it, so that it has no reward at all.
        metrics: For the trainer's log.
    """

    raw: list[list[float | None]]
    weighed: list[list[float | None]]
    failed: list[bool]
    metrics: dict[str, float]

    def fail(self, place: int) -> None:
        """Takes one sample out of every column."""
        self.failed[place] = True
        for column in (*self.raw, *self.weighed):
            column[place] = None


current: ContextVar[Scored] = ContextVar("guerdon_scored")
"""The rewards of the group that the running task has in hand."""


class Handover:
    """Stands in TRL's list of reward functions: gives TRL one column of the group in hand."""

    __name__: str

    def __init__(self, name: str, index: int) -> None:
        self.__name__ = name
        self._index = index

    async def __call__(self, **columns: Any) -> list[float | None]:
        return current.get().weighed[self._index]


class Scores:
    """Scores groups with the functions behind `columns`."""

    def __init__(self, columns: Sequence[RewardColumn]) -> None:
        self._columns = tuple(columns)
        self.dispatchers = dispatchers_of(columns)
        self._weights = [dispatcher_of(column).weights[column.index] for column in columns]
        self._budget = FailureBudget(self.dispatchers)
        self._told: ReportedFailures = set()

    async def of(self, given: Mapping[str, Any], generations: int) -> Scored:
        """The rewards of one group.

        Args:
            given: Its columns by name, as TRL gives them to a reward function.
            generations: How many samples it has.

        Raises:
            DataError: The group can't be scored as it is.
            RewardFailureError: A function fails too often (A-3).
            ClosedError: A dispatcher was closed meanwhile.
        """
        results = await asyncio.gather(*(_score(each, given, generations) for each in self.dispatchers))
        by_dispatcher = {id(each): result for each, result in zip(self.dispatchers, results, strict=True)}
        for result in results:
            report_failures(result, self._told)
        self._budget.add(results)
        failed = np.zeros(generations, dtype=bool)
        for result in results:
            if result.incomplete != "sum":
                failed |= result.failed_samples[0]
        raw, weighed = [], []
        for column, weight in zip(self._columns, self._weights, strict=True):
            result = by_dispatcher[id(column.dispatcher)]
            values = result.rewards[0, :, result.functions.index(column.__name__)].tolist()
            raw.append([None if out or math.isnan(v) else v for v, out in zip(values, failed.tolist(), strict=True)])
            weighed.append([None if value is None else weight * value for value in raw[-1]])
        metrics: dict[str, float] = {}
        for result in results:
            metrics.update((name, float(np.mean(values))) for name, values in result.metrics.items())
            metrics.update(metrics_of(result))
        return Scored(raw, weighed, failed.tolist(), metrics)


class FailureBudget:
    """Counts the failures of each function over the last groups (A-3)."""

    def __init__(self, dispatchers: Sequence[Dispatcher]) -> None:
        self._limits: dict[str, float] = {}
        self._strict: set[str] = set()
        for dispatcher in dispatchers:
            for spec in dispatcher.specs:
                own = spec.policy.max_failure_rate
                self._limits[spec.name] = dispatcher.options["max_failure_rate"] if own is None else own
                if spec.policy.on_failure == "raise":
                    self._strict.add(spec.name)
        self._last: deque[tuple[int, dict[str, int]]] = deque()

    def add(self, results: Sequence[RewardBatch]) -> None:
        """Counts one group, scored by each of the dispatchers.

        Raises:
            RewardFailureError: A function broke its budget.
        """
        if not results:
            return
        failures = [failure for result in results for failure in result.failures()]
        for failure in failures:
            if failure.function in self._strict:
                raise RewardFailureError(f'reward function {failure.function!r} failed (on_failure="raise"). {failure}')
        counts: dict[str, int] = {}
        for failure in failures:
            counts[failure.function] = counts.get(failure.function, 0) + 1
        self._last.append((len(results[0]), counts))
        while sum(samples for samples, _ in self._last) > WINDOW and len(self._last) > 1:
            self._last.popleft()
        samples = sum(size for size, _ in self._last)
        if samples < FEWEST:
            return
        for name, limit in self._limits.items():
            failed = sum(counts.get(name, 0) for _, counts in self._last)
            if failed > limit * samples:
                raise RewardFailureError(_too_many(name, failed, samples, limit, failures))


async def _score(dispatcher: Dispatcher, given: Mapping[str, Any], generations: int) -> RewardBatch:
    """One dispatcher's rewards of one group; with its failures, however many."""
    held: list[Any] = []
    try:
        ticket = dispatcher.submit_columns(given, _Group(generations), held)
        try:
            result = await ticket.aresult()
        except RewardFailureError as error:  # too many for one batch: A-3 judges
            if error.result is None:
                raise
            result = error.result
    except BaseException:
        for batch in held:
            batch.cancel("interrupted")
        raise
    if dispatcher.closed and bool((result.status == Status.CANCELLED).any()):
        raise ClosedError("the dispatcher was closed while this group was scored. Close it after the training.")
    return result


class _Group(TrainerContext):
    """Says how many completions a group has."""

    def __init__(self, generations: int) -> None:
        super().__init__(TrainerMemory())
        self._generations = generations

    def group_size(self) -> int | None:
        return self._generations


def _too_many(name: str, failed: int, samples: int, limit: float, failures: Sequence[Failure]) -> str:
    last = next((str(failure) for failure in failures if failure.function == name), "")
    return (
        f"reward function {name!r} failed on {failed} of the last {samples} samples (limit {100 * limit:.3g} %). "
        f"The last group: {last or 'no failure'}. Mend the function, change its policy, or set `max_failure_rate`."
    )
