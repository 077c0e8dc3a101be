"""Messages between reward workers about answered groups, so that one worker may be lost.

The owner of a group sends all of its answers along with one of those to each worker that had a part
in it. A worker that was lost asks the others for the groups that it owns before it opens any. A
response that comes again is answered as before, whichever worker was lost; two at once may have
been the only ones that knew a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any, Final

from guerdon.errors import RewardFailureError
from guerdon.integrations.verl.kept_groups import Answer, KeptGroups, pack
from guerdon.integrations.verl.origin import Origin
from guerdon.integrations.verl.routing import KEPT, WorkerRouting

__all__ = ["AnsweredGroups"]

_GROUP: Final = "guerdon_group"


class AnsweredGroups:
    """The answered groups that one reward worker knows, of those that several had a part in.

    Args:
        routing: The way to the other workers.
    """

    def __init__(self, routing: WorkerRouting) -> None:
        self._routing = routing
        self._kept = KeptGroups()
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
        found = self._kept.answer(key, origin)
        if isinstance(found, RewardFailureError):
            raise found
        if found is not None and origin.worker != self._routing.index:
            found = {**found, _GROUP: self._kept.packed(key)}
        return found

    def add(self, key: Hashable, origins: Sequence[Origin], answers: list[Answer]) -> list[Answer]:
        """The answers to send, once a group that this worker owns has them."""
        senders = {origin.worker for origin in origins} - {self._routing.index}
        if not senders:
            return answers
        packed = pack(dict(zip(origins, answers, strict=True)))
        self._kept.add(key, packed)
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
            self._kept.add(key, packed)
        return answer

    def groups_of(self, worker: int) -> dict[str, Any]:
        """The answer to a worker that was lost: the groups that it owns."""
        return {KEPT: self._kept.of(lambda key: self._routing.owner(key) == worker)}

    async def _recover(self) -> None:
        for key, packed in await self._routing.kept_by_others():
            self._kept.add(key, packed)
