"""Origin of a response: its identity, which stays the same however often it is sent.

A reward worker that was lost is started again and gets its calls again: it tells a response that
comes twice from two responses.
"""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """That of one response.

    Attributes:
        worker: Index of the reward worker that verl gave it to.
        task: Ray's id of the call in which verl did; Ray makes a call again under the same id.
            Empty where there is none.
        number: Of the response in that call; without one, in the worker.
        session: verl's number of the response in its group; None where it gives none.
    """

    worker: int
    task: str
    number: int
    session: int | None

    @property
    def position(self) -> tuple[int, ...]:
        """Only compared with those of others in its group: so it never depends on the way there."""
        if self.session is not None:
            return (self.session,)
        return (self.worker, int(self.task or "0", 16), self.number)
