"""Samples that are scored one by one: calls that come together become one batch (`coalescing`).

- Each caller gets its own sample's result as soon as that is complete, whatever the others do.
- The calls of a sample that nobody waits for any more are cancelled, those of the others are not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from guerdon._batch.columns import BATCH_OPTIONS, COMPLETION_IDS, COMPLETIONS, ENVIRONMENTS, PROMPTS, TRAINER_STATE
from guerdon._batch.pending import PendingBatch
from guerdon._batch.submission import BatchOptions, Submitter
from guerdon.errors import ClosedError, DataError, RewardFailureError
from guerdon.results.status import Status

if TYPE_CHECKING:
    import asyncio

    from guerdon._batch.coalescing import Coalescer
    from guerdon._batch.engine_source import EngineSource
    from guerdon._batch.result_builder import ResultBuilder
    from guerdon._native import Batch
    from guerdon.results import SampleResult

MOST_SAMPLES: Final = 256

_COMPLETION: Final = "completion"
_PLURALS: Final = {"prompt": PROMPTS, _COMPLETION: COMPLETIONS, "environment": ENVIRONMENTS}


@dataclass(frozen=True)
class _Sample:
    owner: object  # the dispatcher, alive for as long as its samples are scored
    values: Mapping[str, object]  # by the names that a batch's lists have
    trainer_state: object
    place: list[tuple[Batch, int]] = field(default_factory=list)  # once it is in a batch


class SampleScorer:
    """Scores the single samples of one dispatcher.

    Args:
        engine: Its engine.
        submitter: Takes its batches.
        builder: Makes their results.
    """

    def __init__(self, engine: EngineSource, submitter: Submitter, builder: ResultBuilder) -> None:
        self._engine = engine
        self._submitter = submitter
        self._builder = builder
        # Each is read and written only on its own loop.
        self._coalescers: WeakKeyDictionary[asyncio.AbstractEventLoop, Coalescer[_Sample, SampleResult]] = (
            WeakKeyDictionary()
        )

    async def score(self, owner: object, arguments: Mapping[str, object]) -> SampleResult:
        """`result`, for callers whose functions may raise.

        Raises:
            RewardFailureError: A function with ``on_failure="raise"`` failed on it.
        """
        result = await self.result(owner, arguments)
        for spec in self._builder.specs:
            if spec.policy.on_failure == "raise" and spec.name in result.reasons:
                raise RewardFailureError(
                    f'reward function {spec.name!r} failed (on_failure="raise"): {result.reasons[spec.name]}'
                )
        return result

    async def result(self, owner: object, arguments: Mapping[str, object]) -> SampleResult:
        """The result of one sample, however it failed.

        Args:
            owner: The dispatcher.
            arguments: Values of the sample, as `Dispatcher.ascore_one` takes them.

        Raises:
            DataError: It can't be scored.
            ClosedError: The dispatcher was closed meanwhile.
        """
        import asyncio

        from guerdon._batch.coalescing import Coalescer  # loads asyncio

        grouped = self._submitter.group_function
        if grouped is not None:
            raise DataError(
                f"{grouped!r} works on whole groups, so one sample can't be scored alone: use ascore() with the samples "
                "of whole groups."
            )
        # Otherwise it would fail the others, in a function of batches.
        if arguments[_COMPLETION] is None:
            raise DataError("there is no completion: give completion=, a text or a list of messages.")
        for singular, plural in _PLURALS.items():
            if plural in arguments:
                raise DataError(f"ascore_one() takes one sample: give {singular}= instead of {plural}=.")
        for name in BATCH_OPTIONS:
            if name in arguments:
                raise DataError(
                    f"ascore_one() takes no {name}=: its sample runs in a batch with those of other callers. Use ascore(), "
                    "which takes it."
                )
        values = {_PLURALS.get(name, name): value for name, value in arguments.items() if name != TRAINER_STATE}
        sample = _Sample(owner, values, arguments.get(TRAINER_STATE))
        loop = asyncio.get_running_loop()
        coalescer = self._coalescers.get(loop)
        if coalescer is None:
            coalescer = self._coalescers[loop] = Coalescer(self._run, MOST_SAMPLES)
        try:
            result = await coalescer.add(sample, (frozenset(values), id(sample.trainer_state)))
        except asyncio.CancelledError:
            for batch, index in sample.place:
                batch.cancel_group(index, "nobody waits for it")
            raise
        if self._engine.closed and Status.CANCELLED in result.status.values():
            raise ClosedError(
                "the dispatcher was closed while this sample was scored. Close it when nothing is under way."
            )
        return result

    async def _run(self, samples: list[_Sample]) -> AsyncGenerator[tuple[int, SampleResult], None]:
        """Scores samples with the same columns; (index, result) as each is complete."""
        columns: dict[str, object] = {name: [one.values[name] for one in samples] for name in samples[0].values}
        prompts, completions = columns.pop(PROMPTS, None), columns.pop(COMPLETIONS, None)
        completion_ids = columns.pop(COMPLETION_IDS, None)
        if samples[0].trainer_state is not None:
            columns[TRAINER_STATE] = samples[0].trainer_state
        await self._engine.astart(samples[0].owner)
        started: list[Batch] = []
        left = len(samples)
        try:
            batch = self._submitter.submit(
                started, BatchOptions(1, cancellable=True), completions, prompts, completion_ids, columns
            )
            for index, sample in enumerate(samples):
                sample.place.append((batch, index))
            pending = PendingBatch(samples[0].owner, batch, self._builder)
            async with aclosing(pending.agroups()) as groups:
                async for group in groups:
                    yield group.index, self._builder.sample(batch, group)
                    left -= 1
                    # `agroups` raises now if failures were too many: that does not belong to a
                    # caller
                    if not left:
                        break
        finally:
            for one in started:
                if not one.done:
                    one.cancel("nobody waits for it")
