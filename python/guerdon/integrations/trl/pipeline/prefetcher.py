"""The training data, read ahead of the loop that trains on it.

``transformers.Trainer`` asks for a few batches at a time and hands over its own iterator over the
epoch. The prefetcher advances that iterator early and, at its end, begins the next epoch's.

The loop gets the same batches in the same order as without reading ahead, each once. A batch is
read only when it is asked for, so random draws keep their order, and none beyond the run's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any


class _Epoch:
    """One pass over the data."""

    def __init__(self, source: Iterator[Any], loop: Iterator[Any] | None) -> None:
        self._source = source
        self.loop = loop  # the loop's iterator for this epoch, None until it gets there
        self.ready: deque[Any] = deque()  # read, not handed out
        self.ended = False

    def fill(self) -> bool:
        """Reads one batch more; False at the end."""
        if not self.ended:
            try:
                self.ready.append(next(self._source))
            except StopIteration:
                self.ended = True
        return not self.ended


class Prefetcher:
    """The batches of one run, in order."""

    def __init__(self) -> None:
        self.epoch = 0  # which epoch the loop is in; written by the trainer at each epoch's start
        self._epochs: deque[_Epoch] = deque()  # the loop's first
        self._handed_out: deque[Any] = deque()  # not trained on yet; the one in training first
        self._left = 0  # batches of the run that are not trained on yet

    def next_batches(self, iterator: Iterator[Any], count: int, left: int) -> tuple[list[Any], bool]:
        """The next batches for the loop, fewer at the end of an epoch.

        Args:
            iterator: The loop's own for this epoch.
            count: How many it wants.
            left: Batches to the end of the run, these included.

        Returns:
            The batches, and whether they follow the last ones: False after an epoch that the loop
            left early.
        """
        follows = self._enter(iterator)
        self._left = left
        current = self._epochs[0]
        while len(current.ready) < count and current.fill():
            pass
        batches = [current.ready.popleft() for _ in range(min(count, len(current.ready)))]
        self._handed_out.extend(batches)
        return batches, follows

    def trained(self) -> None:
        """The batch in training is done."""
        if self._handed_out:
            self._handed_out.popleft()
            self._left -= 1

    def peek(self, offset: int, dataloader: Any) -> Any | None:
        """The batch `offset` batches after the one in training; None beyond the end of the run."""
        if offset >= self._left or not self._epochs:
            return None
        if offset < len(self._handed_out):
            return self._handed_out[offset]
        offset -= len(self._handed_out)
        index = 0
        while True:
            epoch = self._epochs[index]
            while len(epoch.ready) <= offset and epoch.fill():
                pass
            if offset < len(epoch.ready):
                return epoch.ready[offset]
            offset -= len(epoch.ready)
            index += 1
            if index == len(self._epochs):
                following = self._begin(self.epoch + index, dataloader)
                if not following.fill():
                    return None
                self._epochs.append(following)

    def _enter(self, iterator: Iterator[Any]) -> bool:
        """Moves to the epoch of this iterator; False if the one before was left early."""
        follows = True
        if self._epochs and self._epochs[0].loop is not iterator:
            before = self._epochs.popleft()
            follows = not self._handed_out and not before.ready and not before.fill()
        if not follows:
            self._epochs.clear()
            self._handed_out.clear()
        if not self._epochs:
            self._epochs.append(_Epoch(iterator, iterator))
        self._epochs[0].loop = iterator  # never advanced if the epoch was begun ahead of the loop
        return follows

    @staticmethod
    def _begin(number: int, dataloader: Any) -> _Epoch:
        """Begins an epoch before the loop does, in the way in which the loop does."""
        if hasattr(dataloader, "set_epoch"):
            dataloader.set_epoch(number)
        inner: Any = getattr(getattr(dataloader, "batch_sampler", None), "batch_sampler", None)
        if hasattr(inner, "set_epoch"):
            inner.set_epoch(number)
        return _Epoch(iter(dataloader), None)


def batches_left(state: Any, args: Any, dataloader: Any) -> int:
    """Batches of the data that a run asks for from this optimizer step on."""
    accumulation = args.gradient_accumulation_steps
    try:
        length = len(dataloader)
    except TypeError:  # a stream: an epoch's odd rest only adds to this
        return int((state.max_steps - state.global_step) * accumulation)
    updates = max(-(-length // accumulation), 1)

    def batches(steps: int) -> int:
        return int((steps // updates) * length + min((steps % updates) * accumulation, length))

    return batches(int(state.max_steps)) - batches(int(state.global_step))
