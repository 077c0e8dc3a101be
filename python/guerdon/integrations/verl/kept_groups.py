"""Answers of groups that span reward workers, kept for responses that come again.

Each worker that had a part in a group has its answers, so that a lost one can ask for them: a
response of a group that was answered is answered again, and neither scored twice nor left to wait
for others. Groups are pickled, which gives their size; the oldest go first.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias

from guerdon.errors import RewardFailureError
from guerdon.integrations.verl.origin import Origin

__all__ = ["MOST_BYTES", "Answer", "KeptGroups", "pack"]

MOST_BYTES: Final = 64 << 20

Answer: TypeAlias = "dict[str, Any] | RewardFailureError"
"""Answer to verl for a response: its reward output, or that it has no reward."""


class KeptGroups:
    """The groups that a reward worker keeps.

    Args:
        most: Bytes of all of them; a group that is larger by itself is not kept.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._groups: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0

    def add(self, key: Hashable, packed: bytes) -> None:
        """Keeps a group that was packed; one before it with this key is forgotten."""
        self._bytes += len(packed) - len(self._groups.pop(key, b""))
        self._groups[key] = packed
        while self._bytes > self._most:
            self._bytes -= len(self._groups.popitem(last=False)[1])

    def answer(self, key: Hashable, origin: Origin) -> Answer | None:
        """Returns the earlier answer to the response of the group `key`; None if it is not
        known."""
        packed = self._groups.get(key)
        if packed is None:
            return None
        found: dict[str, Any] | str | None = pickle.loads(packed).get(origin)
        return RewardFailureError(found) if isinstance(found, str) else found

    def packed(self, key: Hashable) -> bytes | None:
        """The group as `add` takes it."""
        return self._groups.get(key)

    def of(self, chosen: Callable[[Hashable], bool]) -> list[tuple[Hashable, bytes]]:
        """The groups with the keys that are chosen, the oldest first."""
        return [(key, packed) for key, packed in self._groups.items() if chosen(key)]


def pack(answers: Mapping[Origin, Answer]) -> bytes:
    """A group as `KeptGroups.add` takes it, and as workers send it to each other."""
    plain = {origin: str(answer) if isinstance(answer, Exception) else answer for origin, answer in answers.items()}
    return pickle.dumps(plain, protocol=pickle.HIGHEST_PROTOCOL)
