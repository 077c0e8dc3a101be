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

from guerdon.cli.top.sockets import AnswerError, ask, find_sockets
from guerdon.cli.top.state import State, parsed, read

__all__ = ["Board", "SeenProgram"]

_STALE_S: Final = 3.0
_SHOWN_ENDED_S: Final = 10.0
_COUNTED_S: Final = 1.0


@dataclass(frozen=True)
class SeenProgram:
    """A dispatcher as it was last seen: `condition` is "", "ended", or for how long it has not
    answered."""

    state: State
    condition: str


@dataclass
class _Entry:
    pid: int
    state: State | None = None
    answer: Any = None
    at: float = 0.0
    ended_at: float | None = None
    request: asyncio.Task[None] | None = None

    @property
    def just_began(self) -> bool:
        """Returns whether it has only begun to count outcomes."""
        counted = None if self.state is None else self.state["counted_s"]
        return counted is not None and counted < _COUNTED_S


class Board:
    """Knows what all dispatchers, or those of one process, answered last."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self._entries: dict[Path, _Entry] = {}

    def seen(self, interval: float = 1.0) -> list[SeenProgram]:
        """All that answered, by rank and process."""
        now = time.monotonic()
        found = []
        for _, entry in sorted(self._entries.items()):
            if entry.state is not None:
                age = now - entry.at
                silent = f"no answer for {age:.0f} s" if age > _STALE_S + interval else ""
                found.append(SeenProgram(entry.state, silent if entry.ended_at is None else "ended"))
        return sorted(found, key=lambda one: (one.state["rank"] or 0, one.state["pid"]))

    def look(self) -> None:
        """Ask all that are not asked already; the loop must run."""
        now = time.monotonic()
        there = find_sockets(self.pid)
        for path, pid in there.items():
            entry = self._entries.setdefault(path, _Entry(pid))
            if entry.request is None:
                entry.request = asyncio.ensure_future(self._ask(path, entry))
        for path, entry in list(self._entries.items()):
            if path not in there and entry.ended_at is None:
                entry.ended_at = now
            if entry.ended_at is not None and (entry.state is None or now - entry.ended_at > _SHOWN_ENDED_S):
                del self._entries[path]
                if entry.request is not None:
                    with contextlib.suppress(RuntimeError):  # the loop has ended
                        entry.request.cancel()

    def look_once(self, timeout: float) -> list[Any]:
        """Ask all once and wait for their answers, up to so many seconds; the answers."""

        async def look() -> None:
            await self._answers(timeout)
            if any(entry.just_began for entry in self._entries.values()):
                # Outcomes are counted from the first question on.
                await asyncio.sleep(_COUNTED_S)
                await self._answers(timeout)
            await self.close()

        asyncio.run(look())
        return [entry.answer for _, entry in sorted(self._entries.items()) if entry.state is not None]

    async def _answers(self, timeout: float) -> None:
        self.look()
        if requests := self._requests():
            await asyncio.wait(requests, timeout=timeout)

    def _requests(self) -> list[asyncio.Task[None]]:
        return [entry.request for entry in self._entries.values() if entry.request is not None]

    async def close(self) -> None:
        """Ask no more."""
        requests = self._requests()
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _ask(self, path: Path, entry: _Entry) -> None:
        try:
            answer = parsed(await ask(path))
            entry.state, entry.answer = read(answer, entry.pid), answer
            entry.at, entry.ended_at = time.monotonic(), None
        except (OSError, AnswerError, ValueError, RecursionError):
            # Nobody listens, or something else does: the next look tries again.
            if entry.ended_at is None:
                entry.ended_at = time.monotonic()
        finally:
            entry.request = None
