"""Batches under way: waiting for a batch, taking groups as they complete, adding samples.

- Waiting never holds the GIL, and in a running event loop never blocks the loop.
- pending-1  Every iteration over the groups sees every group exactly once, in order of completion,
  from any thread and while samples are added. An exception in between loses none.
- Ctrl-C while waiting cancels the batch and raises KeyboardInterrupt; the dispatcher stays usable.
- An error is raised when the batch is complete, never before, and carries all of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from guerdon._batch.async_waiters import AsyncWaiters
from guerdon._batch.bounds import patience
from guerdon._batch.columns import BATCH_OPTIONS
from guerdon.errors import ClosedError, DataError, RewardFailureError, raised_at_the_call

if TYPE_CHECKING:
    from guerdon._batch.appending import Appender
    from guerdon._batch.debugger import Debugger
    from guerdon._batch.result_builder import ResultBuilder
    from guerdon._native import Batch
    from guerdon.results import Group, RewardBatch

# The longest wait for a group in one piece: another thread or loop may have taken its news.
_SLICE_S = 0.25


class PendingBatch:
    """A batch under way: what `Dispatcher.submit` returns.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> pending = Dispatcher([reward(lambda text: 1.0, name="one")]).submit(completions=["a", "b"])
        >>> sorted(group.index for group in pending.groups()), pending.result().rewards.ravel().tolist()
        ([0, 1], [1.0, 1.0])
    """

    def __init__(self, owner: object, batch: Batch, builder: ResultBuilder) -> None:
        self._pid = os.getpid()
        # kept alive: the collection of a dispatcher ends the engine and this batch
        self._owner = owner
        # of a dispatcher with debug=True: runs the functions in the threads that wait here
        self._debugger: Debugger | None = getattr(owner, "_debugger", None)
        self._batch = batch
        self._builder = builder
        self._cancelled = False
        self._interrupted = False
        self._news = threading.RLock()
        # completed groups; appended under `_news` by the thread that took them from the batch
        self._order: list[int] = []
        self._waiters = AsyncWaiters(self._news)
        self._built: RewardBatch | None = None  # written under `_news`, once
        # The error of `result`, as a tuple after the first call: a batch counts once. Written under
        # `_news`.
        self._judged: tuple[str | None] | None = None

    @property
    def done(self) -> bool:
        """Returns whether the batch is complete."""
        return self._batch.done

    @property
    def num_groups(self) -> int:
        """``P``; of a batch that is still open, the groups so far."""
        return self._batch.samples // self._batch.num_generations

    def cancel(self) -> None:
        """Give the batch up: what isn't finished becomes `cancelled`, and `result` returns the
        rest."""
        self._check_process(done=False)
        self._cancelled = True
        self._batch.cancel("cancelled by the caller")

    @raised_at_the_call
    def result(self, timeout: float | None = None) -> RewardBatch:
        """Wait for the whole batch.

        Args:
            timeout: Seconds to wait; None waits as long as it takes. The batch goes on whether it
                is waited for or not.

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
        timeout, seen = patience(timeout), 0
        while True:
            deadline = _deadline(timeout)
            while len(self._order) <= seen:
                if self._listed_all():
                    self.result()
                    return
                if deadline is not None and time.monotonic() >= deadline and not self._take():
                    raise TimeoutError(f"no group completed in {timeout:g} s; the batch goes on")
                self._wait_for_news(deadline)
            yield self._group(self._order[seen])
            seen += 1

    def completed(self) -> list[int]:
        """Indexes of the groups that are complete, in the order in which they completed; does not
        wait."""
        self._take()
        return list(self._order)

    async def aresult(self, timeout: float | None = None) -> RewardBatch:
        """`result` for coroutines. Cancelling the wait doesn't cancel the batch."""
        self._check_process()
        timeout = patience(timeout)
        deadline = _deadline(timeout)
        while not self._batch.done:
            if not await self._await(self._batch.fileno(), deadline, lambda: self._batch.done):
                raise TimeoutError(f"the batch isn't complete after {timeout:g} s{self._goes_on()}")
        return self._result()

    async def agroups(self, timeout: float | None = None) -> AsyncGenerator[Group, None]:
        """`groups` for coroutines."""
        self._check_process()
        timeout, seen = patience(timeout), 0
        while True:
            deadline = _deadline(timeout)
            self._take()
            while len(self._order) <= seen:
                if self._listed_all():
                    await self.aresult()
                    return
                if not await self._await(self._batch.groups_fileno(), deadline, partial(self._has_group, seen)):
                    raise TimeoutError(f"no group completed in {timeout:g} s; the batch goes on")
                self._take()
            yield self._group(self._order[seen])
            seen += 1

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the batch is complete, without looking at its result.

        Raises:
            TimeoutError: It isn't, after `timeout` seconds.
        """
        self._check_process()
        timeout = patience(timeout)
        try:
            if self._debugger is not None:
                self._run_until(lambda: self._batch.done, _deadline(timeout))
                timeout = None if timeout is None else 0.0
            done = self._batch.wait(timeout)
        except (KeyboardInterrupt, SystemExit):
            self._interrupt()
            raise
        if not done:
            raise TimeoutError(f"the batch isn't complete after {timeout:g} s{self._goes_on()}")

    def _run_until(self, known: Callable[[], bool], deadline: float | None) -> None:
        """With ``debug=True``: runs calls in this thread until `known` or the deadline."""
        assert self._debugger is not None
        try:
            while not known() and (deadline is None or time.monotonic() < deadline):
                self._debugger.turn()
        except BaseException:
            self._interrupt()
            raise

    async def _await(self, descriptor: int, deadline: float | None, known: Callable[[], bool]) -> bool:
        """Waits for news, see `AsyncWaiters.wait`."""
        if self._debugger is None:
            return await self._waiters.wait(descriptor, deadline, known)
        from asyncio import sleep

        try:
            self._debugger.turn(0.0)
        except BaseException:
            self._interrupt()
            raise
        await sleep(0.001)  # calls come from another thread
        return known() or deadline is None or time.monotonic() < deadline

    def _goes_on(self) -> str:
        return "; it is still open: finish() ends it" if self._batch.open else "; it goes on"

    def _interrupt(self) -> None:
        """Ends the batch for a caller that can't wait any longer."""
        self._interrupted = True  # first: other waiters must know why the batch ended
        self._batch.cancel("interrupted")

    def _complete(self) -> RewardBatch:
        """Returns the result of the complete batch, however many samples failed."""
        with self._news:
            if self._built is None:
                self._batch.release()
                self._built = self._builder.build(self._batch.result())
            return self._built

    def _result(self) -> RewardBatch:
        result = self._complete()
        with self._news:
            if self._judged is None:  # a caller that cancelled gets the present results
                self._judged = (None if self._cancelled else self._builder.judge(result),)
        if self._judged[0] is not None:
            raise RewardFailureError(self._judged[0], result)
        return result

    def _check_process(self, *, done: bool = True) -> None:
        """Raises `ClosedError` in a forked child; with `done`, only if the batch was not done
        before the fork."""
        if os.getpid() != self._pid and not (done and self._batch.done):
            raise ClosedError(
                "this batch was submitted in another process, and ends only there: a forked child can submit its own."
            )

    @property
    def _state(self) -> str:
        return "done" if self.done else "open" if self._batch.open else "under way"

    def __repr__(self) -> str:
        groups = f"{self.num_groups} groups of {self._batch.num_generations} samples"
        return f"<{type(self).__name__}: {groups}, {self._state}>"

    def _repr_html_(self) -> str:
        from guerdon.results.html_table import html_table

        groups, size = self.num_groups, self._batch.num_generations
        row = (self._state, f"{len(self.completed())} of {groups}", str(groups * size))
        return html_table(type(self).__name__, ("state", "groups complete", "samples"), [row])

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"this {type(self).__name__} belongs to the engine of this process: send what result() gives instead."
        )

    def _has_group(self, seen: int) -> bool:
        return len(self._order) > seen or self._listed_all()

    def _listed_all(self) -> bool:
        # `done` is read first: until the batch is done, more groups may come.
        return self._batch.done and len(self._order) == self.num_groups

    def _group(self, index: int) -> Group:
        from guerdon.results import Group

        return Group(index, *self._batch.group(index))

    def _wait_for_news(self, deadline: float | None) -> None:
        """Waits a while for a group that isn't listed yet."""
        wait = _SLICE_S if deadline is None else max(0.0, min(_SLICE_S, deadline - time.monotonic()))
        if self._debugger is not None:
            turn_ends = time.monotonic() + min(wait, 0.005)
            self._run_until(lambda: time.monotonic() >= turn_ends, None)
            wait = 0.0
        try:
            index = self._batch.next_group(wait)
            with self._news:
                if index is not None:
                    self._list(index)
                else:
                    self._list_rest()
        except TimeoutError:
            return
        except (KeyboardInterrupt, SystemExit):
            self._interrupt()
            raise

    def _take(self) -> bool:
        """Takes the groups that are complete, without waiting; returns whether there were any."""
        taken = False
        with self._news:
            while True:
                try:
                    index = self._batch.next_group(0)
                except TimeoutError:
                    break
                if index is None:
                    self._list_rest()
                    break
                self._list(index)
                taken = True
        return taken

    def _list(self, index: int) -> None:
        """Lists a completed group once and wakes all that wait; the caller holds `_news`."""
        if len(self._order) < self.num_groups:  # else another thread has listed it, with the rest
            self._order.append(index)
        self._waiters.wake()

    def _list_rest(self) -> None:
        """Lists the groups that another thread took, or that an exception kept from being listed
        (pending-1): all were taken, so all are complete. The caller holds `_news`."""
        listed = set(self._order)
        self._order.extend(index for index in range(self.num_groups) if index not in listed)
        self._waiters.wake()


class OpenBatch(PendingBatch):
    """A batch that takes more samples: what `Dispatcher.stream` returns.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
        >>> stream = dispatcher.stream(num_generations=2)
        >>> stream.add(completions=["a", "bc"]), stream.add(completions=["def", "ghij"])
        ([0, 1], [2, 3])
        >>> stream.finish()
        >>> stream.result().rewards.tolist()
        [[[1.0], [2.0]], [[3.0], [4.0]]]
    """

    def __init__(self, owner: object, batch: Batch, builder: ResultBuilder, appender: Appender) -> None:
        super().__init__(owner, batch, builder)
        self._appender = appender

    @property
    def open(self) -> bool:
        """Returns whether samples can still be added."""
        return self._batch.open

    def add(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        completion_ids: object = None,
        group: int | None = None,
        indices: Sequence[int] | None = None,
        **columns: object,
    ) -> list[int]:
        """Add samples, from any thread.

        If ``max_pending`` is set, it waits first, while too many samples are pending
        (backpressure); Ctrl-C then ends the batch. Calls on one sample start at once, group
        functions when their group is full, functions of the batch contract at `finish`.

        Args:
            completions: One per sample, as for `Dispatcher.submit`.
            prompts: One per sample.
            completion_ids: One list of token ids per sample.
            group: Index of the group that they belong to. Without it they fill the lowest free
                places, so groups are filled in order.
            indices: The exact place of each, ``p * G + g``: then no order within a group depends on
                which came first.
            **columns: Dataset columns, one value per sample; the same columns with every call.

        Returns:
            The index of each sample in the batch.

        Raises:
            DataError: They can't be scored, or there is no such place; nothing was added.
            ClosedError: The batch takes no more samples: it was finished, cancelled, or its
                dispatcher closed.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> stream = dispatcher.stream(num_generations=2)
            >>> stream.add(completions=["abc"], indices=[1]), stream.add(completions=["d"], group=0)
            ([1], [0])
            >>> stream.finish()
            >>> [group.rewards.tolist() for group in stream.groups()]
            [[[1.0], [3.0]]]
        """
        _refuse_options(columns)
        self._check_process(done=False)
        if self._debugger is not None:
            self._run_until(lambda: self._batch.has_room, None)
        try:
            self._batch.wait_for_room()
        except (KeyboardInterrupt, SystemExit):
            self._interrupt()
            raise
        return self._appender.add(completions, prompts, completion_ids, columns, group, indices)

    async def aadd(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        completion_ids: object = None,
        group: int | None = None,
        indices: Sequence[int] | None = None,
        **columns: object,
    ) -> list[int]:
        """`add` for coroutines: waiting for room never blocks the loop; cancelled meanwhile, it
        adds nothing."""
        _refuse_options(columns)
        self._check_process(done=False)
        room = self._batch.room_fileno()
        while room is not None and not self._batch.has_room:
            await self._await(room, None, lambda: self._batch.has_room)
        return self._appender.add(completions, prompts, completion_ids, columns, group, indices)

    def finish(self) -> None:
        """Say that no more samples come: functions of the batch contract start, and the batch ends
        with its last group. Does nothing the second time.

        Raises:
            DataError: A group lacks samples; the batch stays open.
        """
        self._appender.finish()


def _refuse_options(columns: Mapping[str, object]) -> None:
    for name in (*BATCH_OPTIONS, "max_pending"):
        if name in columns:
            raise DataError(f"{name}= is for the whole batch: give it to stream(), not to add().")


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
