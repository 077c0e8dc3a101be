"""Answers of groups that span reward workers, kept and sent so that one worker may be lost.

The owner of a group sends all of its answers along with one of those to each worker that had a part
in it. A worker that was lost asks the others for the groups that it owns before it opens any. A
response that comes again is answered as before, whichever worker was lost: it is neither scored
twice nor left to wait for others. Two lost at once may have been the only ones that knew a group.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeAlias

from guerdon.errors import RewardFailureError
from guerdon.integrations.verl.origin import Origin
from guerdon.integrations.verl.routing import KEPT, WorkerRouting

MOST_BYTES: Final = 64 << 20
_GROUP: Final = "guerdon_group"

Answer: TypeAlias = "dict[str, Any] | RewardFailureError"
"""Answer to verl for a response: its reward output, or that it has no reward."""


class AnsweredGroups:
    """The answered groups that one reward worker knows, of those that several had a part in. Each
    is pickled, which gives its size; the oldest are forgotten first.

    Args:
        routing: The way to the other workers.
        most: Bytes of all groups; one that is larger by itself is not kept.
    """

    def __init__(self, routing: WorkerRouting, most: int = MOST_BYTES) -> None:
        self._routing = routing
        self._most = most
        self._groups: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0
        self._recovery: asyncio.Future[None] | None = None

    async def find(self, key: Hashable, origin: Origin) -> dict[str, Any] | None:
        """The answer to a response of a group that this worker owns, if the group was answered.

        Raises:
            RewardFailureError: That was the answer.
        """
        if self._routing.restarted:
            if self._recovery is None:
                self._recovery = asyncio.ensure_future(self._recover())
            await asyncio.shield(self._recovery)
        packed = self._groups.get(key)
        found: dict[str, Any] | str | None = None if packed is None else pickle.loads(packed).get(origin)
        if isinstance(found, str):
            raise RewardFailureError(found)
        if found is not None and origin.worker != self._routing.index:
            found = {**found, _GROUP: packed}
        return found

    def add(self, key: Hashable, origins: Sequence[Origin], answers: list[Answer]) -> list[Answer]:
        """The answers to send, once a group that this worker owns has them."""
        senders = {origin.worker for origin in origins} - {self._routing.index}
        if not senders:
            return answers
        plain = [str(answer) if isinstance(answer, Exception) else answer for answer in answers]
        packed = pickle.dumps(dict(zip(origins, plain, strict=True)), protocol=pickle.HIGHEST_PROTOCOL)
        self._keep(key, packed)
        sent = answers.copy()
        for index, (origin, answer) in enumerate(zip(origins, answers, strict=True)):
            if origin.worker in senders and isinstance(answer, dict):
                senders.discard(origin.worker)
                sent[index] = {**answer, _GROUP: packed}
        return sent

    def received(self, key: Hashable, answer: dict[str, Any]) -> dict[str, Any]:
        """An owner's answer as verl gets it."""
        packed = answer.pop(_GROUP, None)
        if packed is not None:
            self._keep(key, packed)
        return answer

    def groups_of(self, worker: int) -> dict[str, Any]:
        """The answer to a worker that was lost: the groups that it owns."""
        return {KEPT: [(key, packed) for key, packed in self._groups.items() if self._routing.owner(key) == worker]}

    async def _recover(self) -> None:
        for key, packed in await self._routing.kept_by_others():
            self._keep(key, packed)

    def _keep(self, key: Hashable, packed: bytes) -> None:
        """Keeps a group; one before it with this key is forgotten."""
        self._bytes += len(packed) - len(self._groups.pop(key, b""))
        self._groups[key] = packed
        while self._bytes > self._most:
            self._bytes -= len(self._groups.popitem(last=False)[1])
