"""The columns of one dispatcher: each is made at its first use, and is the same object for as long
as it is referenced.

Attributes that are set on a column (TRL's trainers do so) stay without any reference to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from guerdon._batch.trainer.column import Collect, Owner, RewardColumn, RewardList, column_class
from guerdon._functions.callables import is_reward_model

__all__ = ["RewardColumns"]


class RewardColumns:
    """Makes the columns of a list.

    Args:
        items: Of the list.
        names: Of the functions among them, in order.
        rewards: The list, as a trainer sees it.
        collect: Gives a column its rewards.
    """

    def __init__(self, items: Sequence[object], names: Sequence[str], rewards: RewardList, collect: Collect) -> None:
        self._items = items
        self._names = names
        self._rewards = rewards
        self._collect = collect
        # Weakly: each column holds the dispatcher, which else would end only with Python's
        # collector.
        self._columns: WeakValueDictionary[int, RewardColumn] = WeakValueDictionary()
        self._attributes: list[dict[str, Any]] = [{} for _ in items]

    def of(self, dispatcher: Owner) -> list[Any]:
        """Returns the entries of the list as a trainer takes them; the columns hold
        `dispatcher`."""
        return [self._column(dispatcher, index) for index in range(len(self._items))]

    def _column(self, dispatcher: Owner, index: int) -> object:
        if is_reward_model(self._items[index]):
            return self._items[index]
        known = self._columns.get(index)
        if known is not None:
            return known
        function = sum(not is_reward_model(item) for item in self._items[:index])
        name, kept = self._names[function], self._attributes[index]
        column = column_class(name)(dispatcher, self._rewards, self._collect, index, function, name, kept)
        return self._columns.setdefault(index, column)
