"""Batches of requests to a judge, given up where no server of it answers.

- A batch ends early when no endpoint has ever answered, and the circuit breakers of all are open.
- Why is found out by one more request, without retries.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guerdon._functions.spec import FunctionSpec
from guerdon.dispatcher import Dispatcher
from guerdon.profile.listed import Listed
from guerdon.profile.sample_rows import SampleRows

if TYPE_CHECKING:
    from typing import Self

__all__ = ["JudgeBatches", "NoAnswerError"]

_PATIENCE_S: Final = 5.0
_SLICE_S: Final = 0.25
_LAST_REQUEST_S: Final = 10.0


class NoAnswerError(Exception):
    """No endpoint of the judge answered any request; the message is the last error."""


class JudgeBatches:
    """Scores rows with a judge.

    Args:
        unit: The function and the columns that its requests fill too.
        max_cost: Of all requests.
        batch_timeout: Seconds of each batch.
    """

    def __init__(self, unit: Sequence[FunctionSpec], max_cost: float | None, batch_timeout: float) -> None:
        self._unit = unit
        self._max_cost = max_cost
        self._batch_timeout = batch_timeout
        self._dispatcher = Dispatcher([Listed(spec) for spec in unit], max_failure_rate=1.0, max_cost=max_cost)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._dispatcher.close()

    def score(self, rows: SampleRows) -> Any:
        """The result of these rows.

        Raises:
            NoAnswerError: No endpoint has answered any request so far.
        """
        pending = self._dispatcher.submit(**rows.batch(), batch_timeout=self._batch_timeout)
        silent = 0.0
        while True:
            before = time.monotonic()
            try:
                result = pending.result(timeout=_SLICE_S)
                break
            except TimeoutError:
                silent = silent + time.monotonic() - before if self._is_silent(waits=True) else 0.0
                if silent >= _PATIENCE_S:
                    pending.cancel()
        if self._is_silent(waits=False):
            raise NoAnswerError(self._last_error(rows))
        return result

    def _is_silent(self, *, waits: bool) -> bool:
        """Returns whether requests failed and none was ever answered; while some wait, an endpoint
        whose breaker is closed may still answer."""
        leader = self._unit[0]
        found = [
            endpoint for member in leader.fleets for endpoint in self._dispatcher.endpoints(leader.name, member or None)
        ]
        if waits and any(one.breaker == "closed" for one in found):
            return False
        return any(one.failed for one in found) and not any(one.answered for one in found)

    def _last_error(self, rows: SampleRows) -> str:
        policy = [replace(spec.policy, retries=0) for spec in self._unit]
        once = [Listed(replace(spec, policy=each)) for spec, each in zip(self._unit, policy, strict=True)]
        with Dispatcher(once, max_failure_rate=1.0, max_cost=self._max_cost) as dispatcher:
            few = rows.take(range(rows.num_generations))
            failures = dispatcher.score(**few.batch(), batch_timeout=_LAST_REQUEST_S).failures()
        return failures[0].reason if failures else "it answers only now"
