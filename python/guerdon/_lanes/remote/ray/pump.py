"""The messages of one session with an agent: from its link to the actor, and back.

- Messages to the agent are calls of the actor, at most `DEPTH` at a time; messages from the agent
  are one stream, which needs no request per piece.
- Messages are few and large, in pieces that Ray sends along with the call: through the object
  stores they take three times as long. Beside one under way only urgent or large messages go.
- Both directions end with the link, and any error ends the link.
- Both threads wait in Ray or in the engine, without the GIL, and seldom wake up while idle.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from guerdon._lanes.remote.ray.reasons import is_death, is_preempted, reason_of

if TYPE_CHECKING:
    from guerdon._native import Link

__all__ = ["Pump"]

DEPTH: Final = 2
SILENCE_S: Final = 15.0
"""An agent that has not taken a message for this long is lost."""
_LOOK_AGAIN_S: Final = 5.0
_END_S: Final = 2.0
_PIECE: Final = 96 << 10
"""Bytes; Ray sends arguments of less than 100 KiB along, 10 MiB in all."""
_ENOUGH: Final = 512 << 10
"""Bytes that are worth a separate message while another is under way."""
_LINGER_S: Final = 0.005
"""Time that frames wait for others while the workers have enough to do: as in `actor`."""
_BESIDE_S: Final = 0.003
"""Time that urgent bytes may go beside a message that is under way; later it waits for the answer
to that one."""
_IDLE_S: Final = 20.0
"""Interval at which an agent without work gets a sign of the driver; it waits for
`actor.PATIENCE_S`."""


class Pump:
    """One session.

    Args:
        actor: The handle of the node's `AgentActor`.
        session: Its number.
        link: The driver's end.
        hang_up: Kills the actor, whose stream ends with it.
    """

    def __init__(self, actor: Any, session: int, link: Link, hang_up: Callable[[], None]) -> None:
        self._actor = actor
        self._session = session
        self._link = link
        self._hang_up = hang_up
        self._died = False
        self.innocent = False
        """True if the node will end: no call is the cause of its loss then. Set by the watcher."""

    def run(self) -> None:
        """Carries messages until the link is closed or lost."""
        receiver = threading.Thread(target=self._guarded, args=(self._receive,), name="guerdon-from-node", daemon=True)
        receiver.start()
        self._guarded(self._send)
        if not self._died:
            self._end_stream(receiver)
        receiver.join()

    def _end_stream(self, receiver: threading.Thread) -> None:
        """Requests the end of the stream; an agent that does not answer is stopped or stuck."""
        with contextlib.suppress(Exception):
            self._actor.close.remote()
        receiver.join(_END_S)
        if receiver.is_alive():
            self._hang_up()

    def _guarded(self, carry: Callable[[], None]) -> None:
        try:
            carry()
        except BaseException as error:
            if not self._link.closed:
                self._died = is_death(error)
                self.lose(reason_of(error), innocent=is_preempted(error))

    def lose(self, reason: str, *, innocent: bool = False) -> None:
        """Ends the session: the engine gives its calls to other nodes."""
        self._link.lost(reason, innocent=innocent or self.innocent)

    def _send(self) -> None:
        deliver = self._actor.deliver.options(concurrency_group="in")
        under_way: deque[Any] = deque()
        number = 0
        while not self._link.closed:
            if under_way:
                pieces = self._link.take_pieces(_BESIDE_S, _PIECE, linger=math.inf, enough=_ENOUGH)
            else:
                pieces = self._link.take_pieces(_IDLE_S, _PIECE, linger=_LINGER_S, enough=_ENOUGH)
            if pieces is not None or not under_way:
                # A message without pieces is a sign of life of this driver.
                under_way.append(deliver.remote(self._session, number, *(pieces or ())))
                number += 1
                if len(under_way) < DEPTH:
                    continue
            del pieces
            _expect_open(_got(under_way.popleft()))

    def _receive(self) -> None:
        import ray

        stream = self._actor.stream.options(concurrency_group="out", num_returns="streaming").remote(self._session)
        for reference in stream:
            message = ray.get(reference)
            _expect_open(message)
            self._link.deliver(message)


def _got(reference: Any) -> Any:
    """Returns the value if it is there within `SILENCE_S`, or was meanwhile: this process may have
    been stopped for longer, and not the agent."""
    import ray

    try:
        return ray.get(reference, timeout=SILENCE_S)
    except ray.exceptions.GetTimeoutError:
        return ray.get(reference, timeout=_LOOK_AGAIN_S)


def _expect_open(answer: Any) -> None:
    """Raises if the answer is a text, which is the reason for the end of the session."""
    if isinstance(answer, str):
        raise ConnectionError(answer)
