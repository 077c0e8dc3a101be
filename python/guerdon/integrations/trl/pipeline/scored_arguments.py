"""The lists that were scored, compared with those that a user's class gives reward functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Column = Callable[..., list[float | None]]


class ScoredArguments:
    """The lists among the arguments of reward functions, kept as they were.

    Attributes:
        changed: Names of lists that a column was called with and that differ, or are missing.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._lists = copied(_lists(given))
        self.changed: set[str] = set()

    def compare(self, given: Mapping[str, Any], rows: Sequence[int]) -> bool:
        """Returns whether these lists are those rows of the kept ones."""
        lists = _lists(given)
        for name in lists.keys() | self._lists.keys():
            kept = [self._lists[name][row] for row in rows] if name in self._lists else None
            if kept is None or len(lists.get(name, ())) != len(kept) or not all(map(_same, kept, lists[name])):
                self.changed.add(name)
        return not self.changed

    def watched(self, column: Column, rows: Sequence[int]) -> Column:
        """Returns the column with its calls compared. One with other lists, which is to be made
        again, gets numbers of no meaning."""

        def watched(*_: Any, **given: Any) -> list[float | None]:
            known = column()
            if self.compare(given, rows):
                return known
            count = len(given.get("completions", rows))
            return [*(value or 0.0 for value in known[:count]), *[0.0] * (count - len(known))]

        return watched


def _lists(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: values for name, values in given.items() if isinstance(values, list)}


def copied(value: Any) -> Any:
    """Returns a copy of lists and dicts, which holds everything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if type(value) is dict:
        return {key: copied(part) for key, part in value.items()}
    return value


def _same(kept: Any, given: Any) -> bool:
    try:
        return kept is given or (type(kept) is type(given) and (kept == given) is True)
    except Exception:  # of a value's own comparison
        return False
