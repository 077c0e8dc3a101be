"""Groups that the trainer got, so that training continues behind them after a checkpoint.

TRL resumes at the first group that was not trained on. A group dropped as too stale never is, so
every later checkpoint would go back to it. Groups begin in order, each with the policy of its time:
it is dropped, unless it came in time, when one begun no earlier would be dropped now.
"""

from __future__ import annotations


class CheckpointProgress:
    """The groups that came. Used by the thread that reads the queue alone.

    Args:
        max_staleness: Policy versions that a group may be behind.
    """

    def __init__(self, max_staleness: int) -> None:
        self._max_staleness = max_staleness
        self._in_time: set[int] = set()
        self._last: dict[int, int] = {}  # by policy, the last of its groups that came

    def record(self, group: int, version: int, current: int) -> None:
        """A sample of a group came, begun with policy `version`; the trainer's is `current`."""
        self._last[version] = max(group, self._last.get(version, group))
        if current - version <= self._max_staleness:
            self._in_time.add(group)

    def dropped(self, current: int) -> set[int]:
        """Groups that are not trained on any more."""
        last = max(
            (group for version, group in self._last.items() if current - version > self._max_staleness), default=-1
        )
        return set(range(last + 1)) - self._in_time
