"""The last state of each dispatcher, and how old it is.

- A process that does not answer keeps its last state, marked as stale, and is asked no second time
  before it has answered: a stopped one finds one question when it goes on.
- One that has ended is shown as ended for a while, then it is gone; a socket that nobody ever
  answered at is not shown at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from guerdon.cli.top.sockets import AnswerError, SocketFinder, ask
from guerdon.cli.top.state import DispatcherState, parsed, read

__all__ = ["Board", "Seen"]

_STALE_S: Final = 3.0
_SHOWN_ENDED_S: Final = 10.0
_COUNTED_S: Final = 1.0


@dataclass(frozen=True)
class Seen:
    """A dispatcher as it was last seen: `condition` is "", "ended", or for how long it has not
    answered."""

    process: DispatcherState
    condition: str


class _Entry:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.process: DispatcherState | None = None
        self.answer: Any = None
        self.at = 0.0
        self.ended_at: float | None = None
        self.request: asyncio.Task[None] | None = None


def _just_began(entry: _Entry) -> bool:
    """Returns whether a dispatcher has only begun to count outcomes."""
    state = entry.process
    return state is not None and state.counted_s is not None and state.counted_s < _COUNTED_S


class Board:
    """Knows what all dispatchers of a `SocketFinder` answered last."""

    def __init__(self, finder: SocketFinder) -> None:
        self.finder = finder
        self._entries: dict[Path, _Entry] = {}

    def seen(self, interval: float = 1.0) -> list[Seen]:
        """All that answered, by rank and process."""
        now = time.monotonic()
        found = []
        for path in sorted(self._entries):
            entry = self._entries[path]
            if entry.process is None:
                continue
            age = now - entry.at
            condition = "ended" if entry.ended_at is not None else ""
            if not condition and age > _STALE_S + interval:
                condition = f"no answer for {age:.0f} s"
            found.append(Seen(entry.process, condition))
        return sorted(found, key=lambda one: (one.process.rank or 0, one.process.pid))

    def look(self) -> None:
        """Ask all that are not asked already; the loop must run."""
        now = time.monotonic()
        there = self.finder.sockets()
        for path, pid in there.items():
            entry = self._entries.setdefault(path, _Entry(pid))
            if entry.request is None:
                entry.request = asyncio.ensure_future(self._ask(path, entry))
        for path, entry in list(self._entries.items()):
            if path not in there and entry.ended_at is None:
                entry.ended_at = now
            if entry.ended_at is not None and (entry.process is None or now - entry.ended_at > _SHOWN_ENDED_S):
                self._forget(path)

    def look_once(self, timeout: float) -> list[Any]:
        """Ask all once and wait for their answers, up to so many seconds; the answers."""

        async def look() -> None:
            await self._answers(timeout)
            if any(map(_just_began, self._entries.values())):
                # Outcomes are counted from the first question on.
                await asyncio.sleep(_COUNTED_S)
                await self._answers(timeout)
            await self.close()

        asyncio.run(look())
        return [entry.answer for _, entry in sorted(self._entries.items()) if entry.process is not None]

    async def _answers(self, timeout: float) -> None:
        self.look()
        requests = [entry.request for entry in self._entries.values() if entry.request is not None]
        if requests:
            await asyncio.wait(requests, timeout=timeout)

    async def close(self) -> None:
        """Ask no more."""
        requests = [entry.request for entry in self._entries.values() if entry.request is not None]
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _ask(self, path: Path, entry: _Entry) -> None:
        try:
            answer = await ask(path)
            entry.process = read(answer, entry.pid)
            entry.answer = parsed(answer)
            entry.at, entry.ended_at = time.monotonic(), None
        except (OSError, AnswerError, ValueError, RecursionError):
            # Nobody listens, or something else does: the next look tries again.
            if entry.ended_at is None:
                entry.ended_at = time.monotonic()
        finally:
            entry.request = None

    def _forget(self, path: Path) -> None:
        entry = self._entries.pop(path, None)
        if entry is not None and entry.request is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                entry.request.cancel()
