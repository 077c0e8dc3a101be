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


class Prefetcher:
    """The batches of one run, in order."""

    def __init__(self) -> None:
        self.epoch = 0  # which epoch the loop is in; written by the trainer at each epoch's start
        self._loop: Iterator[Any] | None = None  # the loop's own over its epoch
        self._source: Iterator[tuple[int, Any]] = iter(())  # all batches from there on
        # With their epochs, those read and not trained on; the first is in training.
        self._read: deque[tuple[int, Any]] = deque()
        self._handed_out = 0  # how many of them the loop has
        self._left = 0  # batches of the run that are not trained on yet

    def next_batches(self, iterator: Iterator[Any], count: int, left: int, dataloader: Any) -> tuple[list[Any], bool]:
        """The next batches for the loop, fewer at the end of an epoch.

        Args:
            iterator: The loop's own for this epoch. Never advanced if the epoch was begun ahead.
            left: Batches to the end of the run, these included.

        Returns:
            The batches, and whether they follow the last ones: False after an epoch that the loop
            left early.
        """
        follows = True
        if iterator is not self._loop:
            follows = self._loop is None or (not self._handed_out and self._next_epoch() in (None, self.epoch))
            if not follows or self._next_epoch() is None:
                self._read.clear()
                self._handed_out = 0
                self._source = _batches(iterator, self.epoch, dataloader)
            self._loop = iterator
        self._left = left
        batches: list[Any] = []
        while len(batches) < min(count, left) and self._next_epoch() == self.epoch:
            batches.append(self._read[self._handed_out][1])
            self._handed_out += 1
        return batches, follows

    def trained(self) -> None:
        """The batch in training is done."""
        if self._handed_out:
            self._read.popleft()
            self._handed_out -= 1
            self._left -= 1

    def peek(self, offset: int) -> Any | None:
        """The batch `offset` batches after the one in training; None beyond the end of the run."""
        return self._read[offset][1] if offset < self._left and self._reach(offset) else None

    def _next_epoch(self) -> int | None:
        """The epoch of the next batch for the loop; None if there is none."""
        return self._read[self._handed_out][0] if self._reach(self._handed_out) else None

    def _reach(self, offset: int) -> bool:
        while len(self._read) <= offset:
            following = next(self._source, None)
            if following is None:
                return False
            self._read.append(following)
        return True


def _batches(iterator: Iterator[Any], epoch: int, dataloader: Any) -> Iterator[tuple[int, Any]]:
    """Each batch with its epoch; later epochs begin in the way in which the loop begins them."""
    while True:
        number = -1
        for number, batch in enumerate(iterator):  # noqa: B007 - counts
            yield epoch, batch
        if number < 0:
            return
        epoch += 1
        if hasattr(dataloader, "set_epoch"):
            dataloader.set_epoch(epoch)
        inner: Any = getattr(getattr(dataloader, "batch_sampler", None), "batch_sampler", None)
        if hasattr(inner, "set_epoch"):
            inner.set_epoch(epoch)
        iterator = iter(dataloader)


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
