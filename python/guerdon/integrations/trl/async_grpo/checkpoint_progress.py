"""Which groups came to the trainer, so that a checkpoint says where to go on.

TRL goes on with the first group that was not trained on. A group that was dropped as too old is never trained on: every
checkpoint after it would go back to it, and train on all that came since again.

- Y-1  A group is gone when one that was begun no earlier would be dropped if it came now: groups are begun in order, each
       with the policy of its time.
- Y-2  One that came in time is never gone, though training may not have got to it yet.
"""

from __future__ import annotations


class Arrivals:
    """What came; written by the thread that reads the queue, and read by it.

    Args:
        max_staleness: Policies that a group may be behind.
    """

    def __init__(self, max_staleness: int) -> None:
        self._most = max_staleness
        self._in_time: set[int] = set()
        self._last: dict[int, int] = {}  # by policy, the last of its groups that came

    def note(self, group: int, version: int, current: int) -> None:
        """One sample of a group came, begun with policy `version`, when the trainer's was `current`."""
        self._last[version] = max(group, self._last.get(version, group))
        if current - version <= self._most:
            self._in_time.add(group)

    def gone(self, current: int) -> set[int]:
        """Groups that are not trained on any more (Y-1, Y-2)."""
        last = max((group for version, group in self._last.items() if current - version > self._most), default=-1)
        return set(range(last + 1)) - self._in_time
