"""Judges whether a function fails too often where batches are single groups or responses.

The failures of each function are counted over its last samples, across batches, whatever
``on_failure`` made of their cells. A function with ``on_failure="raise"`` is not counted: its first
failure raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from guerdon.dispatcher import Dispatcher
from guerdon.errors import RewardFailureError
from guerdon.results import RewardBatch, SampleResult

WINDOW: Final = 256
"""Samples of a function over which its failures are counted."""


class FailureRate:
    """The failure rates of the functions of some dispatchers.

    Args:
        minimum: Samples of a function before which its rate is not judged.
    """

    def __init__(self, dispatchers: Iterable[Dispatcher], minimum: int) -> None:
        self._minimum = minimum
        self._limits: dict[str, float] = {}
        self._raising: set[str] = set()
        for dispatcher in dispatchers:
            for spec in dispatcher._specs:
                own = spec.policy.max_failure_rate
                self._limits[spec.name] = dispatcher.options["max_failure_rate"] if own is None else own
                if spec.policy.on_failure == "raise":
                    self._raising.add(spec.name)
        self._failed: dict[str, deque[bool]] = {name: deque(maxlen=WINDOW) for name in self._limits}

    def add(self, result: RewardBatch) -> None:
        """Counts a result.

        Raises:
            RewardFailureError: A function fails too often, or failed with ``on_failure="raise"``.
        """
        failures = result.failures()
        for name in result.functions:
            failed = {failure.sample: failure for failure in failures if failure.function == name}
            window = self._failed[name]
            window.extend(sample in failed for sample in range(len(result)))
            if not failed:
                continue
            failure = next(iter(failed.values()))
            if name in self._raising:
                raise RewardFailureError(
                    f"reward function {name!r} failed and has on_failure='raise'. First: {failure}.", result
                )
            self._judge(name, str(failure), result)

    def add_one(self, result: SampleResult) -> None:
        """Counts a result of `Dispatcher.ascore_one`, which raises for ``on_failure="raise"``.

        Raises:
            RewardFailureError: A function fails too often.
        """
        for name, status in result.status.items():
            reason = result.reasons.get(name)
            self._failed[name].append(reason is not None)
            if reason is not None:
                self._judge(name, f"{status.label}: {reason}", None)

    def _judge(self, name: str, last: str, result: RewardBatch | None) -> None:
        window, limit = self._failed[name], self._limits[name]
        failed, samples = sum(window), len(window)
        if samples >= self._minimum and failed > limit * samples:
            raise RewardFailureError(
                f"reward function {name!r} failed on {failed} of its last {samples} samples (limit "
                f"{100 * limit:.3g} %). The last failure: {last}. Fix the function, raise its timeout, or set "
                "`max_failure_rate`.",
                result,
            )
