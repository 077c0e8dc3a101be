"""Chunks through the functions: the dispatchers that score them, and the results.

- A function of groups or batches is called on whole ones, or not at all.
- No dispatcher here has the journal, trace or server of the one that was given: scoring leaves no
  trace in the journal that is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from guerdon.dispatcher import Dispatcher
from guerdon.errors import RewardFailureError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guerdon._batch.pending import PendingBatch
    from guerdon._functions.spec import FunctionSpec
    from guerdon._replay.chunks import Chunk
    from guerdon._replay.needs import Needs
    from guerdon.results import RewardBatch

__all__ = ["Outcomes", "Scorer", "SubmittedChunk"]

_NOT_OURS: Final = ("journal", "trace", "metrics_port", "watchdog")
"""Options of a dispatcher that would write or serve something."""


@dataclass(eq=False)
class Outcomes:
    """One function's new outcomes on the samples of a chunk, ``[S]`` each.

    Attributes:
        reward: NaN where there is none.
        reasons: Of failed samples, by place.
    """

    reward: NDArray[np.float32]
    status: NDArray[np.uint8]
    reasons: dict[int, str] = field(default_factory=dict)


@dataclass
class SubmittedChunk:
    """A chunk that is being scored; `pending` is None where no function can be called on it."""

    chunk: Chunk
    pending: PendingBatch | None

    def result(self) -> tuple[dict[str, Outcomes], RewardBatch | None]:
        """Wait for it: outcomes by function, and the result that they are from."""
        if self.pending is None:
            return {}, None
        try:
            result = self.pending.result()
        except RewardFailureError as error:  # judged over the whole journal, at the end
            if error.result is None:
                raise
            result = error.result
        return _outcomes(result), result


class Scorer:
    """The functions that score a journal again.

    Args:
        dispatcher: With them; its own engine is not used.
        workers: Processes of the process lane; None for the dispatcher's own number.

    Attributes:
        grouped: Names of the functions that see whole groups or batches, or wait for one that does.
    """

    def __init__(self, dispatcher: Dispatcher, workers: int | None) -> None:
        self._options = {name: value for name, value in dispatcher._options.items() if name not in _NOT_OURS}
        self._options.update(weights=None, num_generations=None, max_failure_rate=1.0)
        if workers is not None:
            self._options["workers"] = workers
        self.specs: list[FunctionSpec] = list(dispatcher._specs)
        self.grouped = {spec.name for spec in self.specs if spec.shape != "sample" or spec.finish is not None}
        while waiting := {spec.name for spec in self.specs if self.grouped & _sources(spec)} - self.grouped:
            self.grouped |= waiting
        self._dispatchers: dict[bool, Dispatcher] = {}

    @property
    def takes_batches(self) -> bool:
        """Returns whether a function sees whole batches."""
        return any(spec.shape == "batch" for spec in self.specs)

    def submit(self, chunk: Chunk, needs: Needs) -> SubmittedChunk:
        """Start scoring a chunk."""
        dispatcher = self._dispatcher(whole=chunk.whole)
        if dispatcher is None:
            return SubmittedChunk(chunk, None)
        there = {name: chunk.values(name) for name in needs.texts if name == "completion" or chunk.has(name)}
        called = {"prompt": "prompts", "completion": "completions"}
        arguments: dict[str, Any] = {called.get(name, name): values for name, values in there.items()}
        if "completion" not in needs.texts:
            arguments["completions"] = [""] * len(chunk)
        return SubmittedChunk(chunk, dispatcher.submit(num_generations=chunk.size, **arguments))

    def close(self) -> None:
        for dispatcher in self._dispatchers.values():
            dispatcher.close()

    def _dispatcher(self, *, whole: bool) -> Dispatcher | None:
        """That of all functions, or of those that see single samples; None without any."""
        specs = [spec for spec in self.specs if whole or spec.name not in self.grouped]
        if specs and whole not in self._dispatchers:
            options = dict(self._options)
            if not any(plan.cost.price for spec in specs for plan in spec.plans):
                options["max_cost"] = None
            self._dispatchers[whole] = Dispatcher([spec.item for spec in specs], **options)
        return self._dispatchers.get(whole) if specs else None


def _sources(spec: FunctionSpec) -> set[str]:
    """The functions that its ``run_if`` waits for."""
    return set() if spec.run_if is None else {one.source for one in spec.run_if.conditions}


def _outcomes(result: RewardBatch) -> dict[str, Outcomes]:
    found = {
        name: Outcomes(result.rewards[..., place].ravel(), result.status[..., place].ravel())
        for place, name in enumerate(result.functions)
    }
    for failure in result.failures():
        found[failure.function].reasons[failure.sample] = failure.reason
    return found
