"""The training data, read ahead of the loop that trains on it.

The loop of ``transformers.Trainer`` asks for a few batches at a time and hands over its own iterator over the epoch.
Reading ahead means to advance that iterator early, and at its end the next epoch's.

- A-1  The loop gets the same batches in the same order as without reading ahead, each once.
- A-2  Nothing is read before it is asked for, so that what random numbers the data draws, it draws in the same order.
- A-3  Nothing is read beyond the end of the run.
- A-4  An epoch that was begun early is gone on with by the iterator that began it; the one that the loop makes for it
       is never advanced.
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


class Reader:
    """The batches of one run, in order."""

    def __init__(self) -> None:
        self.epoch = 0  # which epoch the loop is in; written by the trainer at each epoch's start
        self._epochs: deque[_Epoch] = deque()  # the loop's first
        self._handed: deque[Any] = deque()  # handed out, not trained on; the one in hand first
        self._left = 0  # batches of the run that aren't trained on

    def hand_out(self, iterator: Iterator[Any], count: int, left: int) -> tuple[list[Any], bool]:
        """The next batches for the loop, fewer at the end of an epoch.

        Args:
            iterator: The loop's own for this epoch.
            count: How many it wants.
            left: Batches to the end of the run, these included.

        Returns:
            The batches, and whether they go on from where the loop was: False after an epoch that it left early.
        """
        follows = self._enter(iterator)
        self._left = left
        current = self._epochs[0]
        while len(current.ready) < count and current.fill():
            pass
        batches = [current.ready.popleft() for _ in range(min(count, len(current.ready)))]
        self._handed.extend(batches)
        return batches, follows

    def trained(self) -> None:
        """The batch in hand was trained on."""
        if self._handed:
            self._handed.popleft()
            self._left -= 1

    def peek(self, offset: int, dataloader: Any) -> Any | None:
        """The batch that comes `offset` batches after the one in hand; None beyond the end of the run (A-3)."""
        if offset >= self._left or not self._epochs:
            return None
        if offset < len(self._handed):
            return self._handed[offset]
        offset -= len(self._handed)
        place = 0
        while True:
            epoch = self._epochs[place]
            while len(epoch.ready) <= offset and epoch.fill():
                pass
            if offset < len(epoch.ready):
                return epoch.ready[offset]
            offset -= len(epoch.ready)
            place += 1
            if place == len(self._epochs):
                following = self._begin(self.epoch + place, dataloader)
                if not following.fill():
                    return None
                self._epochs.append(following)

    def _enter(self, iterator: Iterator[Any]) -> bool:
        """Moves to the epoch of this iterator; False if the one before was left early."""
        follows = True
        if self._epochs and self._epochs[0].loop is not iterator:
            before = self._epochs.popleft()
            follows = not self._handed and not before.ready and not before.fill()
        if not follows:
            self._epochs.clear()
            self._handed.clear()
        if not self._epochs:
            self._epochs.append(_Epoch(iterator, iterator))
        self._epochs[0].loop = iterator
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
