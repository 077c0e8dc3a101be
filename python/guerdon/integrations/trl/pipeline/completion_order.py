"""Groups that all dispatchers of a batch have completed, in the order in which the last did."""

from __future__ import annotations

import select
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guerdon._batch.pending import PendingBatch

# Another waiter may have taken the news that this one waits for: look again after this long.
_POLL_MS = 1000


def complete_everywhere(orders: Sequence[Sequence[int]], known: Collection[int]) -> list[int]:
    """The groups that are in each of the orders and not `known`, first those that were complete
    first."""
    common = set(orders[0]).intersection(*orders[1:]).difference(known)
    # The one that completed a group last says which was first.
    places = {group: max(order.index(group) for order in orders) for group in common}
    return sorted(common, key=places.__getitem__)


def wait_for_news(batches: Sequence[PendingBatch]) -> None:
    """Waits for one more group of any batch, not for ever."""
    poll = select.poll()
    for batch in batches:
        poll.register(batch._batch.groups_fileno(), select.POLLIN)
    poll.poll(_POLL_MS)
