"""A batch under way: wait for it, or take its groups as they complete.

- T-1  Waiting never holds the GIL, and in a running event loop never blocks the loop.
- T-2  Every iteration over the groups sees every group exactly once, in order of completion; several may go on at once,
       from any thread. A group that was taken from the batch and not told, because an exception came in between, is
       told when all have been taken. That holds while samples are still added, from wherever that is done.
- T-3  Ctrl-C while waiting cancels the batch and raises KeyboardInterrupt; the dispatcher stays usable.
- T-4  An error is raised when the batch is complete, never before, and carries all of it.
- T-5  In a forked child there is nothing to wait for, unless the batch was done before the fork.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from guerdon import _options
from guerdon._submit.async_waiters import Sleepers
from guerdon.errors import ClosedError, RewardFailureError

if TYPE_CHECKING:
    from guerdon._native import Batch
    from guerdon._result.rules import Rules
    from guerdon._submit.appending import Intake
    from guerdon.results import Group, RewardBatch

# The longest wait for a group in one piece: another thread or loop may have taken the news that this one waits for.
_SLICE_S = 0.25


class PendingBatch:
    """What `Dispatcher.submit` gives back.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> ticket = Dispatcher([reward(lambda text: 1.0, name="one")]).submit(completions=["a", "b"])
        >>> sorted(group.index for group in ticket.groups()), ticket.result().rewards.ravel().tolist()
        ([0, 1], [1.0, 1.0])
    """

    def __init__(
        self,
        owner: object,
        batch: Batch,
        rules: Rules,
        intake: Intake | None = None,
    ) -> None:
        self._pid = os.getpid()
        self._owner = owner  # kept alive: a dispatcher that is collected ends its engine and this batch with it
        self._batch = batch
        self._rules = rules
        self._intake = intake  # of a batch that was submitted with more=True
        self._cancelled = False
        self._interrupted = False
        self._news = threading.RLock()
        self._order: list[int] = []  # completed groups; appended under `_news`, by whoever took them from the batch
        self._sleepers = Sleepers(self._news)  # coroutines that wait for news
        self._settled: tuple[RewardBatch, str | None] | None = None  # written under `_news`, once

    @property
    def done(self) -> bool:
        """Whether the batch is complete."""
        return self._batch.done

    @property
    def batch(self) -> Batch:
        """The engine's batch. For integrations."""
        return self._batch

    @property
    def open(self) -> bool:
        """Whether samples can still be added."""
        return self._batch.open

    @property
    def num_groups(self) -> int:
        """``P``; while the batch is open, the groups that there are so far."""
        return self._batch.samples // self._batch.num_generations

    def add(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        completion_ids: object = None,
        group: int | None = None,
        samples: Sequence[int] | None = None,
        **columns: object,
    ) -> list[int]:
        """Add samples to a batch that was submitted with ``more=True``; from any thread.

        With ``max_pending`` it waits first, while too many samples are pending; Ctrl-C then ends the batch. Calls
        that take one sample start at once, group functions when their group is full, functions of the batch contract at
        `finish`.

        Args:
            completions: One per sample, as for `Dispatcher.submit`; the other columns too, the same with every call.
            group: Index of the group that they belong to. Without it they fill the lowest places that are free, so
                groups are filled in order.
            samples: The exact place of each, ``p * G + g``, for whoever knows it: then no order within a group
                depends on what came first.

        Returns:
            The place of each sample.

        Raises:
            DataError: They can't be scored, or there is no such place; nothing was added.
            ClosedError: The batch takes no more samples: it was finished, cancelled, or its dispatcher closed.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> ticket = dispatcher.submit(more=True, num_generations=2)
            >>> ticket.add(completions=["abc"], samples=[1]), ticket.add(completions=["d"], group=0)
            ([1], [0])
            >>> ticket.finish()
            >>> [group.rewards.tolist() for group in ticket.groups()]
            [[[1.0], [3.0]]]
        """
        intake = self.intake
        try:
            self._batch.wait_for_room()
        except (KeyboardInterrupt, SystemExit):
            self.interrupt()
            raise
        return intake.add(completions, prompts, completion_ids, columns, group, samples)

    async def aadd(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        completion_ids: object = None,
        group: int | None = None,
        samples: Sequence[int] | None = None,
        **columns: object,
    ) -> list[int]:
        """`add` for coroutines: waiting for room never blocks the loop, and who stops waiting has added nothing."""
        intake = self.intake
        room = self._batch.room_fileno()
        while room is not None and not self._batch.has_room:
            await self._sleepers.news_from(room, None, lambda: self._batch.has_room)
        return intake.add(completions, prompts, completion_ids, columns, group, samples)

    def finish(self) -> None:
        """No more samples come: functions of the batch contract start, and the batch ends with its last group.

        Does nothing the second time.

        Raises:
            DataError: A group lacks samples; the batch stays open.
        """
        self.intake.finish()

    @property
    def intake(self) -> Intake:
        """What takes samples into an open batch. For integrations: there a column may have any name.

        Raises:
            ClosedError: The batch was submitted whole.
        """
        if self._intake is None:
            raise ClosedError("this batch was submitted whole: submit(..., more=True) leaves it open for more samples.")
        return self._intake

    def cancel(self) -> None:
        """Gives the batch up: what isn't finished becomes `cancelled`, and `result` returns what there is."""
        self._check_process(done=False)
        self._cancelled = True
        self._batch.cancel("cancelled by the caller")

    def result(self, timeout: float | None = None) -> RewardBatch:
        """Wait for the whole batch.

        Args:
            timeout: Seconds to wait; None waits as long as it takes. The batch goes on whether it is waited for or not.

        Raises:
            TimeoutError: The batch isn't complete yet.
            RewardFailureError: A function failed on more samples than its policy allows.
        """
        self.wait(timeout)
        return self._result()

    def groups(self, timeout: float | None = None) -> Iterator[Group]:
        """Every group, as it completes.

        Args:
            timeout: Seconds to wait for each group.

        Raises:
            TimeoutError: No group completed in time.
            RewardFailureError: As `result`, after the last group.
        """
        self._check_process()
        timeout, seen = _options.patience(timeout), 0
        while True:
            deadline = _deadline(timeout)
            while len(self._order) <= seen:
                if self._told_all():
                    self.result()
                    return
                if deadline is not None and time.monotonic() >= deadline and not self._take():
                    raise TimeoutError(f"no group completed in {timeout:g} s; the batch goes on")
                self._wait_for_news(deadline)
            yield self._group(self._order[seen])
            seen += 1

    def completed(self) -> list[int]:
        """Indexes of the groups that are complete, in the order in which they completed; does not wait."""
        self._take()
        return list(self._order)

    async def aresult(self, timeout: float | None = None) -> RewardBatch:
        """`result` for coroutines. Cancelling the wait doesn't cancel the batch."""
        self._check_process()
        timeout = _options.patience(timeout)
        deadline = _deadline(timeout)
        while not self._batch.done:
            if not await self._sleepers.news_from(self._batch.fileno(), deadline, lambda: self._batch.done):
                raise TimeoutError(f"the batch isn't complete after {timeout:g} s; it goes on")
        return self._result()

    async def agroups(self, timeout: float | None = None) -> AsyncIterator[Group]:
        """`groups` for coroutines."""
        self._check_process()
        timeout, seen = _options.patience(timeout), 0
        while True:
            deadline = _deadline(timeout)
            self._take()
            while len(self._order) <= seen:
                if self._told_all():
                    await self.aresult()
                    return
                if not await self._sleepers.news_from(
                    self._batch.groups_fileno(), deadline, partial(self._knows, seen)
                ):
                    raise TimeoutError(f"no group completed in {timeout:g} s; the batch goes on")
                self._take()
            yield self._group(self._order[seen])
            seen += 1

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the batch is complete, without looking at what came of it.

        Raises:
            TimeoutError: It isn't, after `timeout` seconds.
        """
        self._check_process()
        timeout = _options.patience(timeout)
        try:
            done = self._batch.wait(timeout)
        except (KeyboardInterrupt, SystemExit):
            self.interrupt()
            raise
        if not done:
            raise TimeoutError(f"the batch isn't complete after {timeout:g} s; it goes on")

    @property
    def interrupted(self) -> bool:
        """Whether a caller that waited for it was interrupted, which ended the batch."""
        return self._interrupted

    def interrupt(self) -> None:
        """Ends the batch for a caller that can't wait for it any longer (T-3)."""
        self._interrupted = True  # first: who waits too must know why the batch ended
        self._batch.cancel("interrupted")

    def settled(self) -> tuple[RewardBatch, str | None]:
        """The complete batch, and what to tell the user if failures were too many (T-4)."""
        with self._news:
            if self._settled is None:
                self._batch.release()
                self._settled = self._rules.settle(self._batch.apart(), cancelled=self._cancelled)
            return self._settled

    def _result(self) -> RewardBatch:
        result, message = self.settled()
        if message is not None:
            raise RewardFailureError(message, result)
        return result

    def _check_process(self, *, done: bool = True) -> None:
        """Raises `ClosedError` in a forked child (T-5); with `done`, only if the batch was not done before."""
        if os.getpid() != self._pid and not (done and self._batch.done):
            raise ClosedError(
                "this batch was submitted in another process, and ends only there: a forked child can submit its own."
            )

    def __repr__(self) -> str:
        state = "done" if self.done else "open" if self.open else "under way"
        return f"<Ticket: {self.num_groups} groups of {self._batch.num_generations} samples, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Ticket belongs to the engine of this process: send what result() gives instead.")

    def _knows(self, seen: int) -> bool:
        return len(self._order) > seen or self._told_all()

    def _told_all(self) -> bool:
        """Whether all groups are known that will ever be. The batch is asked first: until it is done there may be more."""
        return self._batch.done and len(self._order) == self.num_groups

    def _group(self, index: int) -> Group:
        from guerdon.results import Group

        return Group(index, *self._batch.group(index))

    def _wait_for_news(self, deadline: float | None) -> None:
        """Waits a while for a group that nobody was told of."""
        wait = _SLICE_S if deadline is None else max(0.0, min(_SLICE_S, deadline - time.monotonic()))
        try:
            index = self._batch.next_group(wait)
            with self._news:
                if index is not None:
                    self._tell(index)
                else:
                    self._tell_rest()
        except TimeoutError:
            return
        except (KeyboardInterrupt, SystemExit):
            self.interrupt()
            raise

    def _take(self) -> bool:
        """Takes the groups that are complete, without waiting; whether there were any."""
        taken = False
        with self._news:
            while True:
                try:
                    index = self._batch.next_group(0)
                except TimeoutError:
                    break
                if index is None:
                    self._tell_rest()
                    break
                self._tell(index)
                taken = True
        return taken

    def _tell(self, index: int) -> None:
        """Makes a completed group known to all who wait, once; the caller holds `_news`."""
        if len(self._order) < self.num_groups:  # else somebody else has told it, with the rest
            self._order.append(index)
        self._sleepers.wake()

    def _tell_rest(self) -> None:
        """All groups were taken, so all are complete: what is not told yet is in the hands of another thread, or lost
        with an exception there (T-2). The caller holds `_news`."""
        told = set(self._order)
        self._order.extend(index for index in range(self.num_groups) if index not in told)
        self._sleepers.wake()


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
