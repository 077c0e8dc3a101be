"""The groups of a generated batch that all of its dispatchers have completed.

Each dispatcher scores them in a batch of its own. They come in the order in which the last did.
"""

from __future__ import annotations

import select
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from guerdon.errors import ClosedError
from guerdon.results.status import Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guerdon._batch.trainer.batches import TrainerBatch
    from guerdon.dispatcher import Dispatcher

# Another waiter may have taken the news that this one waits for: look again after this long.
_POLL_MS = 1000

Started = Sequence[tuple["Dispatcher", "TrainerBatch"]]
Cells = tuple["NDArray[np.float32]", "NDArray[np.uint8]"]  # rewards and statuses, ``[G, F]``


def complete_groups(started: Started, known: Collection[int]) -> Iterator[list[int]]:
    """Again and again the groups that are complete everywhere and not `known`, first those that
    were complete first. Between, waits for one more group of any batch, not for ever."""
    while True:
        # First: a batch done by now has all its groups below, and no more news.
        under_way = [batch.pending for _, batch in started if not batch.pending.done]
        orders = [batch.pending.completed() for _, batch in started]
        common = set(orders[0]).intersection(*orders[1:]).difference(known)
        # The one that completed a group last says which was first.
        places = {group: max(order.index(group) for order in orders) for group in common}
        yield sorted(common, key=places.__getitem__)
        debugged = [pending for pending in under_way if pending._debugger is not None]
        if debugged:
            for pending in debugged:
                pending._wait_for_news(None)  # runs its functions in this thread
            continue
        poll = select.poll()
        for pending in under_way:
            poll.register(pending._batch.groups_fileno(), select.POLLIN)
        poll.poll(_POLL_MS)


def cells_of(dispatcher: Dispatcher, batch: TrainerBatch, group: int) -> Cells:
    """Rewards and statuses of a group that is complete.

    Raises:
        ClosedError: The dispatcher was closed meanwhile.
    """
    rewards, status = batch.pending._batch.group(group)
    if dispatcher.closed and bool((status == Status.CANCELLED).any()):
        raise ClosedError("the dispatcher was closed while this batch was scored. Close it after the training.")
    return rewards, status


def open_groups(started: Started, size: int) -> int:
    """Groups of `size` samples that are not complete now."""
    most = 0
    for _, batch in started:
        pending = batch.pending
        left = (pending.num_groups - len(pending.completed())) * pending._batch.num_generations
        most = max(most, -(-left // size))
    return most
