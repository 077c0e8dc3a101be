"""Chunks through the functions: the cells that are scored, the dispatcher that scores them, and the
results.

- A function of groups or batches is called on whole ones, or not at all.
- No dispatcher here has the journal, trace or server of the one that was given: scoring leaves no
  trace in the journal that is read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guerdon._replay.chunks import ABSENT, Cells
from guerdon.dispatcher import Dispatcher
from guerdon.errors import DataError, RewardFailureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guerdon._batch.pending import PendingBatch
    from guerdon._functions.spec import FunctionSpec
    from guerdon._replay.chunks import Chunk
    from guerdon._replay.needs import Needs
    from guerdon.results import RewardBatch

__all__ = ["Outcomes", "Scorer", "Submitted"]

_NOT_OURS: Final = ("journal", "trace", "metrics_port", "watchdog")
"""Options of a dispatcher that would write or serve something."""


@dataclass(eq=False)
class Outcomes(Cells):
    """One function's new outcomes on the samples of a chunk; `ABSENT` where it was not called.

    Attributes:
        attempts: uint16.
        queue_s: Seconds, as `run_s`.
        reasons: Of failed samples, by place: reason and traceback.
        extra: What was recorded, by place.
        submitted: When the chunk was submitted, Unix time.
    """

    attempts: NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))
    queue_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    run_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    reasons: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    extra: dict[int, dict[str, Any]] = field(default_factory=dict)
    submitted: float = 0.0

    @classmethod
    def none(cls, samples: int) -> Outcomes:
        empty = Cells.empty(samples)
        times = np.zeros(samples), np.zeros(samples)
        return cls(empty.reward, empty.status, empty.weight, empty.row, np.zeros(samples, np.uint16), *times)

    def keep(self, samples: NDArray[np.bool_]) -> None:
        """Forget all other samples."""
        self.status[~samples] = ABSENT
        self.reward[~samples] = np.nan
        self.reasons = {place: reason for place, reason in self.reasons.items() if samples[place]}
        self.extra = {place: extra for place, extra in self.extra.items() if samples[place]}


@dataclass
class _ScoringCall:
    """Some samples of a chunk with the functions that score them."""

    pending: PendingBatch
    places: NDArray[np.int64]
    names: list[str]
    submitted: float


@dataclass
class Submitted:
    """A chunk that is being scored."""

    chunk: Chunk
    calls: list[_ScoringCall]

    def result(self) -> tuple[dict[str, Outcomes], list[RewardBatch]]:
        """Wait for it: outcomes by function, and the results that they are from."""
        outcomes: dict[str, Outcomes] = {}
        results = []
        for call in self.calls:
            try:
                result = call.pending.result()
            except RewardFailureError as error:  # judged over the whole journal, at the end
                if error.result is None:
                    raise
                result = error.result
            results.append(result)
            _take(outcomes, len(self.chunk), call, result)
        return outcomes, results


class Scorer:
    """The functions that score a journal again.

    Args:
        dispatcher: With them; its own engine is not used.
        chosen: Names of those that score; None for all.
        workers: Processes of the process lane; None for the dispatcher's own number.

    Raises:
        DataError: There is no function of such a name, or none but reward models.
    """

    def __init__(self, dispatcher: Dispatcher, chosen: Collection[str] | None, workers: int | None) -> None:
        self._options = {name: value for name, value in dispatcher._options.items() if name not in _NOT_OURS}
        self._options.update(weights=None, num_generations=None, max_failure_rate=1.0)
        if workers is not None:
            self._options["workers"] = workers
        self._specs = {spec.name: spec for spec in dispatcher._specs}
        unknown = [name for name in chosen or () if name not in self._specs]
        if unknown:
            raise DataError(f"there is no reward function {unknown[0]!r}. There are: {', '.join(self._specs)}.")
        self.names: list[str] = [name for name in self._specs if chosen is None or name in chosen]
        self._dispatchers: dict[frozenset[str], Dispatcher] = {}

    @property
    def specs(self) -> list[FunctionSpec]:
        """Returns the specs of the functions that score, and of those that they wait for."""
        called = self._with_sources(self.names)
        return [self._specs[name] for name in called]

    @property
    def takes_batches(self) -> bool:
        """Returns whether a function sees whole batches."""
        return any(spec.shape == "batch" for spec in self.specs)

    def takes_groups(self, name: str) -> bool:
        """Returns whether the function sees whole groups or batches."""
        return any(
            spec.shape != "sample" or spec.finish is not None
            for spec in map(self._specs.__getitem__, self._with_sources([name]))
        )

    def submit(self, chunk: Chunk, wanted: Mapping[str, NDArray[np.bool_]], needs: Needs) -> Submitted:
        """Start scoring the cells of a chunk that are wanted.

        Args:
            wanted: Of each function, by sample.
        """
        calls: list[_ScoringCall] = []
        for places, names in self._calls(chunk, wanted):
            grouped = any(self.takes_groups(name) for name in names)
            part = chunk if len(places) == len(chunk) else chunk.cut(places)
            size = chunk.size if grouped or part is chunk else 1
            arguments: dict[str, Any] = {name: part.values(name) for name in needs.columns if part.has(name)}
            if needs.prompts and part.has("prompt"):
                arguments["prompts"] = part.values("prompt")
            arguments["completions"] = part.values("completion") if needs.completions else [""] * len(part)
            dispatcher = self._dispatcher(names)
            now = time.time()
            calls.append(_ScoringCall(dispatcher.submit(num_generations=size, **arguments), places, names, now))
        return Submitted(chunk, calls)

    def close(self) -> None:
        for dispatcher in self._dispatchers.values():
            dispatcher.close()

    def _calls(
        self, chunk: Chunk, wanted: Mapping[str, NDArray[np.bool_]]
    ) -> Iterable[tuple[NDArray[np.int64], list[str]]]:
        """Samples and the functions that score just these."""
        together: dict[bytes, list[str]] = {}
        masks: dict[bytes, NDArray[np.bool_]] = {}
        for name, mask in wanted.items():
            called = self.called(chunk, name, mask)
            if called.any():
                together.setdefault(called.tobytes(), []).append(name)
                masks[called.tobytes()] = called
        for key, names in together.items():
            yield np.flatnonzero(masks[key]), names

    def called(self, chunk: Chunk, name: str, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The samples that a call must have to score those wanted."""
        if not self.takes_groups(name) or mask.all():
            return mask
        if self._specs[name].shape == "batch":
            return np.full(len(mask), bool(mask.any()))
        return np.repeat(mask.reshape(-1, chunk.size).any(axis=1), chunk.size)

    def _dispatcher(self, names: Sequence[str]) -> Dispatcher:
        key = frozenset(names)
        known = self._dispatchers.get(key)
        if known is None:
            specs = [self._specs[name] for name in self._with_sources(names)]
            options = dict(self._options)
            if not any(plan.cost.price for spec in specs for plan in spec.plans):
                options["max_cost"] = None
            known = self._dispatchers[key] = Dispatcher([spec.item for spec in specs], **options)
        return known

    def _with_sources(self, names: Iterable[str]) -> list[str]:
        """The functions with those that their ``run_if`` waits for, and all columns of a rubric."""
        called = set(names)
        fresh = list(called)
        while fresh:
            spec = self._specs[fresh.pop()]
            others = [one.source for one in spec.run_if.conditions] if spec.run_if is not None else []
            leader = getattr(spec.compound, "leader", spec.name)
            others += [
                each.name
                for each in self._specs.values()
                if leader in (each.name, getattr(each.compound, "leader", ""))
            ]
            more = [name for name in others if name not in called]
            called.update(more)
            fresh += more
        return [name for name in self._specs if name in called]


def _take(outcomes: dict[str, Outcomes], samples: int, call: _ScoringCall, result: RewardBatch) -> None:
    count = len(result.functions)
    rewards = result.rewards.reshape(-1, count)
    status = result.status.reshape(-1, count)
    attempts, queue_s, run_s = (each.reshape(-1, count) for each in (result.attempts, result.queue_s, result.run_s))
    failures: dict[str, dict[int, tuple[str, str | None]]] = {}
    for failure in result.failures():
        reasons = failures.setdefault(failure.function, {})
        reasons[int(call.places[failure.sample])] = failure.reason, failure.traceback
    recorded = result._recorded
    for place, name in enumerate(result.functions):
        if name not in call.names:  # it was called for another's run_if
            continue
        into = outcomes.setdefault(name, Outcomes.none(samples))
        into.reward[call.places] = rewards[:, place]
        into.status[call.places] = status[:, place]
        into.attempts[call.places] = attempts[:, place]
        into.queue_s[call.places] = queue_s[:, place]
        into.run_s[call.places] = run_s[:, place]
        into.reasons.update(failures.get(name, {}))
        into.submitted = call.submitted
        for column, values in recorded[place].extra:
            own = column.removeprefix(f"{name}/")  # as a journal has it
            for sample, value in enumerate(values):
                if value is not None:
                    into.extra.setdefault(int(call.places[sample]), {})[own] = value
