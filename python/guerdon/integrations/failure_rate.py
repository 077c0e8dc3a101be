"""Judges whether a function fails too often where batches are single groups or responses.

The failures of each function are counted over its last samples, across batches, by the rule of
`guerdon._batch.failure_rate`. If ``on_failure="raise"``, the first failure raises.
"""

from __future__ import annotations

from collections.abc import Iterable

from guerdon._batch.failures import BatchFailures, FunctionFailures
from guerdon.dispatcher import Dispatcher
from guerdon.errors import RewardFailureError
from guerdon.results import RewardBatch, SampleResult
from guerdon.results.status import Status


class ResultFailureRate:
    """The failure rates of the functions of some dispatchers."""

    def __init__(self, dispatchers: Iterable[Dispatcher]) -> None:
        builders = {dispatcher.names: dispatcher._builder for dispatcher in dispatchers}
        self._rates = {names: (builder, builder.new_failure_rate()) for names, builder in builders.items()}

    def add(self, result: RewardBatch) -> None:
        """Counts a result.

        Raises:
            RewardFailureError: A function fails too often, or failed with ``on_failure="raise"``.
        """
        builder, rate = self._rates[tuple(result.functions)]
        counted, message = builder.count(result)
        message = message or rate.add([counted])
        if message is not None:
            raise RewardFailureError(message, result)

    def add_one(self, result: SampleResult) -> None:
        """Counts a result of `Dispatcher.ascore_one`, which raises for ``on_failure="raise"``.

        Raises:
            RewardFailureError: A function fails too often.
        """
        _, rate = self._rates[tuple(result.status)]
        failures = {name: _of_sample(result.status[name], reason) for name, reason in result.reasons.items()}
        skipped = {name: (0,) for name, status in result.status.items() if status is Status.SKIPPED}
        message = rate.add([BatchFailures(1, failures, skipped=skipped)])
        if message is not None:
            raise RewardFailureError(message)


def _of_sample(status: Status, reason: str) -> FunctionFailures:
    advice = "Fix the function, raise its timeout, or set `max_failure_rate`."
    return FunctionFailures((0,), {status.label: 1}, reason, advice)
