"""Snapshots of the environments of a batch, taken on the engine.

Copying runs user code (``__deepcopy__``), which may block. Copies are made concurrently in threads,
each with the timeout of a ``reset``, so that neither the trainer nor the rollout loop waits longer.
An environment whose copy times out has no snapshot: using it raises what to define. One that can't
be copied is an error at once where a reward function names environments, else only when used.
"""

from __future__ import annotations

from typing import Any

from guerdon.errors import SnapshotError, ToolError
from guerdon.integrations.trl.tool_calls.deep_copy import UnavailableSnapshot, snapshot, user_class
from guerdon.integrations.trl.tool_calls.environments import COPY, Environments, owner_of
from guerdon.integrations.trl.tool_calls.executor import PendingCall

__all__ = ["take_snapshot", "take_snapshots"]


def take_snapshots(live: list[Any], *, needed: bool, reused: bool) -> list[object]:
    """A snapshot for each environment.

    Args:
        needed: Whether a reward function names them: then one that can't be copied is an error now.
        reused: Whether the environments may be reset before all rewards are known.

    Raises:
        SnapshotError: An environment can't be copied.
    """
    started = [_PendingCopy(environment, needed=needed, reused=reused) for environment in live]
    try:
        return [copy.result() for copy in started]
    finally:
        for copy in started:
            copy.end()


async def take_snapshot(environment: object) -> object:
    """The snapshot of one environment that a reward function asks for, and that is used again.

    Raises:
        SnapshotError: It can't be copied.
    """
    return await _PendingCopy(environment, needed=True, reused=True).aresult()


class _PendingCopy:
    """The copy of one environment, in progress."""

    def __init__(self, environment: object, *, needed: bool, reused: bool) -> None:
        self._environment = environment
        self._needed = needed
        self._reused = reused
        self._owner = owner_of(environment)
        self._call: PendingCall | None = None
        self._taken: object = None
        try:
            if self._owner is None:  # made by no `environments(...)`: no timeout applies
                self._taken = snapshot(environment)
            else:
                self._call = self._owner.start(environment, COPY, snapshot, (), {})
        except ToolError as error:  # an abandoned call still has it
            self._taken = UnavailableSnapshot(str(error), environment)
        except SnapshotError as error:
            self._taken = self._unavailable(error)

    def result(self) -> object:
        """Waits; the snapshot, or what stands for it."""
        if self._call is None:
            return self._taken
        try:
            taken: object = self._call.result()
        except (SnapshotError, ToolError) as error:
            return self._unavailable(error)
        return taken

    async def aresult(self) -> object:
        """`result` for coroutines."""
        if self._call is None:
            return self._taken
        try:
            taken: object = await self._call.aresult()
        except (SnapshotError, ToolError) as error:
            return self._unavailable(error)
        return taken

    def end(self) -> None:
        """Cancels a copy that nobody waits for any more."""
        if self._call is not None and not self._call.done:
            self._call.cancel()

    def _unavailable(self, error: SnapshotError | ToolError) -> UnavailableSnapshot:
        """What stands for an environment without a snapshot.

        Raises:
            SnapshotError: The environment can't be copied, and a reward function needs it.
        """
        if isinstance(error, SnapshotError):
            if self._needed:
                raise error
            return UnavailableSnapshot(str(error), self._environment, live=not self._reused)
        return UnavailableSnapshot(_timeout_message(self._environment, self._owner, error), self._environment)


def _timeout_message(environment: object, owner: Environments | None, error: ToolError) -> str:
    kind = user_class(environment).__qualname__
    if owner is None or owner.stuck_in(environment) is None:
        return f"the environment {kind} was not copied: {error}"
    return (
        f"copying the environment {kind} took longer than {owner.timeout_of(COPY):g} s and can't be stopped. Define "
        f"{kind}.__deepcopy__(self, memo) to return what rewards need of it, or raise `reset_timeout` of environments(...)."
    )
