"""Methods that give batches and single samples to a dispatcher: `guerdon.Dispatcher` inherits these
methods.

- Incomplete batches are refused before any call.
- An exception in the caller's thread (Ctrl-C) leaves no batch under way that nobody can reach.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from guerdon._batch.pending import OpenBatch, PendingBatch
from guerdon._batch.submission import BatchOptions
from guerdon.errors import raised_at_the_call

if TYPE_CHECKING:
    from guerdon._batch.result_builder import ResultBuilder
    from guerdon._batch.single_samples import SampleScorer
    from guerdon._batch.submission import Submitter
    from guerdon._engine.handle import EngineHandle
    from guerdon._native import Batch
    from guerdon.results import RewardBatch, SampleResult

__all__ = ["ScoringMethods"]


class ScoringMethods:
    """Scores batches, open batches and single samples with an engine."""

    _engine: EngineHandle
    _submitter: Submitter
    _builder: ResultBuilder
    _sample_scorer: SampleScorer

    @raised_at_the_call
    def score(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        **columns: object,
    ) -> RewardBatch:
        """Score a batch and wait for it.

        Args:
            completions: One per sample, length ``P * G``, texts or lists of messages; the samples
                of a group are contiguous.
            prompts: One per sample, repeated for each completion, as trainers do.
            num_generations: ``G``, completions per prompt; 1 if neither this nor the dispatcher
                says it and no function needs it.
            completion_ids: One list of token ids per sample.
            group_quorum: Deliver a group once so many of its samples have all their cells, and
                cancel the stragglers: `Status.CANCELLED`, reason "quorum", no failure of their
                function. A group function counts as a cell of each sample; ``finish_group`` gets
                the scores that there are.
            group_timeout: Seconds that a group may take from its first sample. Calls that have not
                ended then are `Status.TIMEOUT`, reason "group timeout". Together with
                `group_quorum` whatever comes first ends the group.
            batch_timeout: Seconds that the batch may take; the dispatcher's if left out.
            **columns: Dataset columns, one value per sample; also ``environments`` and
                ``trainer_state``.

        Returns:
            Rewards ``[P, G, F]``, float32, NaN where there is no reward.

        Raises:
            DataError: The batch can't be scored: a column is missing, a length is wrong, groups
                aren't whole.
            RewardFailureError: A function failed on more samples than allowed.
            ClosedError: The dispatcher was closed.

        Examples:
            >>> import asyncio, guerdon
            >>> @guerdon.reward
            ... async def slow(seconds: float) -> float:
            ...     await asyncio.sleep(seconds)
            ...     return 1.0
            >>> dispatcher = guerdon.Dispatcher([slow])
            >>> batch = dispatcher.score(
            ...     completions=["a", "b"], seconds=[0.0, 60.0], num_generations=2, group_quorum=1
            ... )
            >>> [guerdon.Status(status).label for status in batch.status.ravel()]
            ['ok', 'cancelled']
        """
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout)
        started: list[Batch] = []
        try:
            batch = self._submitter.submit(started, options, completions, prompts, completion_ids, columns)
            return PendingBatch(self, batch, self._builder).result()
        except BaseException:
            _give_up(started)
            raise

    @raised_at_the_call
    def submit(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        **columns: object,
    ) -> PendingBatch:
        """Start scoring a batch and return at once; arguments and errors as for `score`.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> pending = dispatcher.submit(completions=["a", "bcd"], num_generations=2)
            >>> pending.result().rewards.tolist()
            [[[1.0], [3.0]]]
        """
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout)
        started: list[Batch] = []
        try:
            batch = self._submitter.submit(started, options, completions, prompts, completion_ids, columns)
            return PendingBatch(self, batch, self._builder)
        except BaseException:
            _give_up(started)
            raise

    @raised_at_the_call
    def stream(
        self,
        *,
        num_generations: int | None = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        max_pending: int | None = None,
        trainer_state: object = None,
    ) -> OpenBatch:
        """Open a batch that takes samples as they come, by `OpenBatch.add`, until
        `OpenBatch.finish`.

        Args:
            num_generations: As for `score`, like the other options.
            max_pending: `OpenBatch.add` waits (backpressure) while so many samples are in full
                groups that are not complete yet.
            trainer_state: The same for all samples, for functions that ask for it.

        Raises:
            DataError: An option can't work.
            ClosedError: The dispatcher was closed.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> stream = dispatcher.stream(num_generations=2)
            >>> stream.add(completions=["a", "bc"])
            [0, 1]
            >>> stream.finish()
            >>> stream.result().rewards.tolist()
            [[[1.0], [2.0]]]
        """
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout, max_pending)
        started: list[Batch] = []
        try:
            batch, appender = self._submitter.open(started, options, trainer_state)
            return OpenBatch(self, batch, self._builder, appender)
        except BaseException:
            _give_up(started)
            raise

    async def ascore(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        **columns: object,
    ) -> RewardBatch:
        """`score` for coroutines: the running loop goes on meanwhile. Cancelling it cancels the
        batch."""
        await self._engine.astart(self)
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout)
        started: list[Batch] = []
        try:
            batch = self._submitter.submit(started, options, completions, prompts, completion_ids, columns)
            return await PendingBatch(self, batch, self._builder).aresult()
        except BaseException:
            _give_up(started)
            raise

    async def ascore_one(
        self,
        /,  # a dataset may have a column called self
        *,
        completion: object,
        prompt: object = None,
        completion_ids: object = None,
        **columns: object,
    ) -> SampleResult:
        """Score one sample, from any event loop; calls that come together are scored together.

        Calls in the same turn of a loop are scored in few batches, of at most 256 samples each: for
        callers that have one sample at a time, thousands of them at once. Each call returns when
        its own sample is complete. Functions of TRL's batch contract run once on each such batch,
        so they are right for this only if their rows are independent.

        Args:
            completion: A text or a list of messages.
            prompt: Its prompt.
            completion_ids: Its token ids.
            **columns: Values of the sample by column; also ``environment`` and ``trainer_state``.

        Returns: Rewards, status and reasons by function, and the total. Failures are in it:
            ``max_failure_rate`` is not judged.

        Raises:
            DataError: This sample can't be scored, or a function works on whole groups.
            RewardFailureError: A function with ``on_failure="raise"`` failed on it.
            ClosedError: The dispatcher was closed.

        Examples:
            >>> import asyncio
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> asyncio.run(dispatcher.ascore_one(completion="abc")).rewards
            {'length': 3.0}
        """
        given = {"prompt": prompt, "completion_ids": completion_ids}
        given = {name: value for name, value in given.items() if value is not None}
        return await self._sample_scorer.score(self, {"completion": completion, **given, **columns})


# The TypeError of a wrong call names the class that users know.
for _method in ("score", "submit", "stream", "ascore", "ascore_one"):
    inspect.unwrap(getattr(ScoringMethods, _method)).__qualname__ = f"Dispatcher.{_method}"


def _give_up(started: list[Batch]) -> None:
    """Cancels batches whose caller was interrupted; nothing happens to those that are done."""
    for batch in started:
        batch.cancel("interrupted")
