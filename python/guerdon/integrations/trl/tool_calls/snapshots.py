"""Snapshots of the environments of a batch, taken on the engine.

What copies an environment is user code, a ``__deepcopy__`` of its own perhaps: it may block as any other method may.

- C-1  Copies are made side by side in threads, each with the deadline of a ``reset``; neither the trainer's thread nor the
       rollout process's loop waits for one longer than that.
- C-2  An environment whose copy takes too long has no snapshot: those who look at it are told which, and what to define.
       It is an environment that an abandoned call still has (E-4 of worlds.py).
- C-3  One that can't be copied is an error at once where a function asks for environments by name, else only to those who
       look at it.
"""

from __future__ import annotations

from typing import Any

from guerdon.errors import SnapshotError, ToolError
from guerdon.integrations.trl.tool_calls.deep_copy import Unavailable, plain_type, snapshot
from guerdon.integrations.trl.tool_calls.environments import COPY, Environments, environments_of
from guerdon.integrations.trl.tool_calls.executor import Running

__all__ = ["asnapshot", "snapshots"]


def snapshots(live: list[Any], *, needed: bool, reused: bool) -> list[object]:
    """A snapshot for each environment.

    Args:
        needed: Whether a reward function asks for them by name: then one that can't be copied is an error now.
        reused: Whether the environments may be reset before all rewards are known.

    Raises:
        SnapshotError: An environment can't be copied.
    """
    started = [_Copy(environment, needed=needed, reused=reused) for environment in live]
    try:
        return [copy.result() for copy in started]
    finally:
        for copy in started:
            copy.end()


async def asnapshot(environment: object) -> object:
    """The snapshot of one environment that a reward function asks for, and that is used again.

    Raises:
        SnapshotError: It can't be copied.
    """
    return await _Copy(environment, needed=True, reused=True).aresult()


class _Copy:
    """The copy of one environment, under way."""

    def __init__(self, environment: object, *, needed: bool, reused: bool) -> None:
        self._environment = environment
        self._needed = needed
        self._reused = reused
        self._hub = environments_of(environment)
        self._running: Running | None = None
        self._taken: object = None
        try:
            if self._hub is None:  # not routed: there is no deadline to give it
                self._taken = snapshot(environment)
            else:
                self._running = self._hub.start(environment, COPY, snapshot, (), {})
        except ToolError as error:  # an abandoned call has it
            self._taken = Unavailable(str(error), environment)
        except SnapshotError as error:
            self._taken = self._missing(error)

    def result(self) -> object:
        """Waits; the snapshot, or what stands for it."""
        if self._running is None:
            return self._taken
        try:
            taken: object = self._running.result()
        except (SnapshotError, ToolError) as error:
            return self._missing(error)
        return taken

    async def aresult(self) -> object:
        """`result` for coroutines."""
        if self._running is None:
            return self._taken
        try:
            taken: object = await self._running.aresult()
        except (SnapshotError, ToolError) as error:
            return self._missing(error)
        return taken

    def end(self) -> None:
        """Gives up what nobody waits for any more."""
        if self._running is not None and not self._running.done:
            self._running.cancel()

    def _missing(self, error: SnapshotError | ToolError) -> Unavailable:
        """What stands for an environment without a snapshot.

        Raises:
            SnapshotError: As it is to be told now (C-3).
        """
        if isinstance(error, SnapshotError):
            if self._needed:
                raise error
            return Unavailable(str(error), self._environment, live=not self._reused)
        return Unavailable(_late(self._environment, self._hub, error), self._environment)


def _late(environment: object, hub: Environments | None, error: ToolError) -> str:
    kind = plain_type(environment).__qualname__
    if hub is None or hub.busy_in(environment) is None:
        return f"the environment {kind} was not copied: {error}"
    return (
        f"copying the environment {kind} took longer than {hub.time_of(COPY):g} s and can't be stopped. Define "
        f"{kind}.__deepcopy__(self, memo) to return what rewards need of it, or raise `reset_timeout` of environments(...)."
    )
