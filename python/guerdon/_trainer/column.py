"""Reward columns: what a dispatcher puts into a trainer's list of reward functions.

A trainer calls its functions one after another, each with the same lists. The first column that is called with a batch
starts all functions of the dispatcher on it; the others only collect.

- C-1  A batch is known by the identity of the lists that it was called with, which are held alive while it is open.
- C-2  It ends when every column was collected, or when a column is called again with the same lists: lists refilled in
       place are a new batch.
- C-3  Columns may be called in any order, from any thread, for several batches at once. At most 64 batches stay open.
- C-4  A sample that can't be scored is None in every column.
- C-5  What there is to raise or to log is raised or logged by the column that was called first, on its caller's thread.
- C-6  Ctrl-C in the column that was called first ends the batch, wherever it hits: there will be no columns to collect.
"""

from __future__ import annotations

import operator
import os
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from guerdon._trainer.context import TrainerContext, TrainerFunctions, TrainerMemory, context_of
from guerdon.errors import ClosedError, GuerdonError, GuerdonWarning, RewardFailureError
from guerdon.status import Status

if TYPE_CHECKING:
    from guerdon._native import Batch
    from guerdon.pending import PendingBatch
    from guerdon.results import RewardBatch

MOST_OPEN = 64

Key = tuple[tuple[str, int], ...]


class Owner(Protocol):
    """What columns ask of the dispatcher whose columns they are."""

    @property
    def batches(self) -> ColumnBatches: ...
    @property
    def closed(self) -> bool: ...
    @property
    def trainer_functions(self) -> TrainerFunctions: ...
    def submit_columns(self, given: Mapping[str, Any], context: TrainerContext, held: list[Batch]) -> PendingBatch: ...
    def open_columns(
        self, given: Mapping[str, Any], samples: int, context: TrainerContext, held: list[Batch]
    ) -> PendingBatch: ...


class RewardColumn:
    """One reward function of a dispatcher, in the shape that TRL's trainers call (its batch contract).

    Attributes:
        dispatcher: Whose column it is.
        index: Its place in the dispatcher's list.
    """

    __name__: str
    # Not in `__dict__`, which the dispatcher keeps (D-2).
    __slots__ = ("__dict__", "__weakref__", "dispatcher")

    def __init__(self, dispatcher: Owner, index: int, function: int, name: str, kept: dict[str, Any]) -> None:
        self.__dict__ = kept
        self.dispatcher = dispatcher
        self.index = index
        self._function = function
        if "__name__" not in kept:
            self.__name__ = self.__qualname__ = name

    def __call__(
        self, /, prompts: Any = None, completions: Any = None, completion_ids: Any = None, **columns: Any
    ) -> list[float | None]:
        """One reward per sample, None where there is none.

        Raises:
            DataError: The batch can't be scored as it is.
            RewardFailureError: A function failed on more samples than allowed; from the first column called with a
                batch.
        """
        own = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
        given = {name: values for name, values in own.items() if values is not None}
        return self.dispatcher.batches.collect(self._function, {**given, **columns})

    def __reduce__(self) -> tuple[Callable[[Any, Any], Any], tuple[Owner, int]]:
        return operator.getitem, (self.dispatcher, self.index)

    def __repr__(self) -> str:
        return f"<reward column {self.__name__!r}>"


@dataclass(frozen=True)
class Begun:
    """A batch of columns under way, for a trainer that does not call them one by one. For integrations.

    Attributes:
        context: Who called.
        given: The arguments of the call, as a column gets them.
        ticket: The batch.
    """

    context: TrainerContext
    given: Mapping[str, Any]
    ticket: PendingBatch


@dataclass
class _Open:
    """A batch that not every column has collected."""

    held: list[Any]  # the lists, kept alive so that their identity stays theirs (C-1)
    ticket: PendingBatch
    collected: set[int] = field(default_factory=set)  # under the lock of `ColumnBatches`


class ColumnBatches:
    """The open batches of one dispatcher's columns."""

    def __init__(self, dispatcher: Owner, count: int) -> None:
        self._dispatcher = weakref.ref(dispatcher)
        self._count = count
        self._lock = threading.Lock()
        self._open: OrderedDict[Key, _Open] = OrderedDict()  # oldest first; under the lock
        # By trainer; under the lock.
        self._memories: weakref.WeakKeyDictionary[Any, TrainerMemory] = weakref.WeakKeyDictionary()
        self._told_of_others = False
        _alive.add(self)

    def collect(self, function: int, given: Mapping[str, Any]) -> list[float | None]:
        """The column of `function` for the batch with these lists; starts the batch if it isn't open (C-2)."""
        held: list[Batch] = []
        try:
            return self._collect(function, given, held)
        except Exception:
            raise
        except BaseException:  # C-6
            self._drop(held)
            raise

    def _collect(self, function: int, given: Mapping[str, Any], held: list[Batch]) -> list[float | None]:
        context = self._context(given)
        key = _key(given)
        try:
            with self._lock:
                batch = self._open.get(key)
                first = batch is None or function in batch.collected
                if batch is None or first:
                    self._open.pop(key, None)
                    batch = self._open[key] = self._start(context, given, held)
                batch.collected.add(function)
                if len(batch.collected) == self._count:
                    del self._open[key]
                released = self._release()
        except Exception as error:
            raise context.agree(error, None) or error from None
        if released:
            _warn(
                f"more than {MOST_OPEN} batches have columns that were never collected; the oldest was released. Call "
                "every column "
                "of list(dispatcher) for each batch, or use dispatcher.score()."
            )
        if first:
            result = self.settle(Begun(context, given, batch.ticket))
            self._tell_of_others(result, context)
        else:
            result = self._follow(batch)
        return _column(result, function)

    def begin(self, given: Mapping[str, Any], held: list[Batch]) -> Begun:
        """Starts all functions on a batch whose columns nobody will call; `settle` ends it.

        Args:
            given: What a column would be called with, by name.
            held: The batch is appended as soon as it exists, for a caller who is interrupted.

        Raises:
            DataError: The batch can't be scored as it is.
        """
        context = self._context(given)
        context.check(self._owner().trainer_functions)
        return Begun(context, given, self._owner().submit_columns(given, context, held))

    def open(self, given: Mapping[str, Any], samples: int, held: list[Batch]) -> Begun:
        """`begin` for a batch whose samples come one after another, by the ticket's `intake`.

        Args:
            given: What is the same for all samples: ``trainer_state``, ``log_extra``, ``log_metric``.
            samples: How many there will be.
        """
        context = self._context(given)
        context.check(self._owner().trainer_functions)
        return Begun(context, given, self._owner().open_columns(given, samples, context, held))

    def settle(self, begun: Begun) -> RewardBatch:
        """Waits for a batch, and raises or logs what there is (C-5).

        Raises:
            RewardFailureError: A function failed on more samples than allowed, here or on another rank.
            ClosedError: The dispatcher was closed meanwhile.
        """
        result: RewardBatch | None = None
        error: Exception | None = None
        try:
            begun.ticket.wait()
            result, message = begun.ticket.settled()
            self._refuse_closed(result)
            if message is not None:
                error = RewardFailureError(message, result)
        except Exception as unforeseen:
            error = unforeseen
        error = begun.context.agree(error, result)
        if error is not None or result is None:
            try:
                raise error or GuerdonError("a batch ended without a result")
            finally:
                del (
                    error
                )  # else it and its traceback hold each other, and the batch, until Python's collector comes round
        begun.context.report(result, begun.given)
        return result

    def forget(self) -> None:
        """In a forked child: the open batches are the parent's."""
        self._lock = threading.Lock()
        self._open = OrderedDict()

    def _context(self, given: Mapping[str, Any]) -> TrainerContext:
        with self._lock:
            return context_of(given, self._memories)

    def _start(self, context: TrainerContext, given: Mapping[str, Any], held: list[Batch]) -> _Open:
        context.check(self._owner().trainer_functions)
        return _Open(list(_lists(given).values()), self._owner().submit_columns(given, context, held))

    def _drop(self, held: list[Batch]) -> None:
        """Ends the batch that this call started, if it did."""
        with self._lock:
            for key, batch in list(self._open.items()):
                if batch.ticket.batch in held:
                    del self._open[key]
                    batch.ticket.interrupt()
        for started in held:
            started.cancel("interrupted")

    def _release(self) -> bool:
        if len(self._open) <= MOST_OPEN:
            return False
        self._open.popitem(last=False)
        return True

    def _follow(self, batch: _Open) -> RewardBatch:
        batch.ticket.wait()
        if batch.ticket.interrupted:
            raise GuerdonError(
                "this batch was interrupted while another column waited for it. To score it anew, call the columns with it again."
            )
        result, _ = batch.ticket.settled()
        self._refuse_closed(result)
        return result

    def _refuse_closed(self, result: RewardBatch) -> None:
        if self._owner().closed and bool((result.status == Status.CANCELLED).any()):
            raise ClosedError(
                "the dispatcher was closed while this batch was scored. Close it when no batch is under way."
            )

    def _tell_of_others(self, result: RewardBatch, context: TrainerContext) -> None:
        """Warns, once, where a sample is left out here and still counted by what is not this dispatcher's."""
        if self._told_of_others or result.incomplete == "sum" or not bool(result.failed_samples.any()):
            return
        others = context.others(self._owner().trainer_functions)
        if others:
            self._told_of_others = True
            _warn(
                "samples with a failed reward function are left out of every column of this dispatcher, but the "
                f"trainer itself runs {', '.join(others)} and still counts it for them. Put all reward functions into one "
                "dispatcher where you can."
            )

    def _owner(self) -> Owner:
        dispatcher = self._dispatcher()
        assert dispatcher is not None  # its columns hold it, and only they come here
        return dispatcher


# Every `ColumnBatches` there is, for `forget`.
_alive: weakref.WeakSet[ColumnBatches] = weakref.WeakSet()


def _after_fork() -> None:
    for batches in list(_alive):
        batches.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _key(given: Mapping[str, Any]) -> Key:
    """The identity of every list in `given` (C-1)."""
    return tuple(sorted((name, id(values)) for name, values in _lists(given).items()))


def _lists(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in given.items() if hasattr(type(v), "__len__") and not isinstance(v, str)}


def _column(result: RewardBatch, function: int) -> list[float | None]:
    """One function's rewards, None where there is none or the sample can't be scored (C-4)."""
    values = result.rewards[:, :, function].ravel()
    empty = (result.unscorable.ravel() | (values != values)).tolist()
    return [None if nothing else value for value, nothing in zip(values.tolist(), empty, strict=True)]


def _warn(message: str) -> None:
    warnings.warn(message, GuerdonWarning, stacklevel=5)
