"""The engine of this host, as a dispatcher's own engine sees it: a node that is joined, or not.

- A hindrance makes it a node that can't be used: the calls run in this process's own workers then,
  with one warning.
- An engine that does not answer for `SILENCE_S` is killed and lost: its frames must not go on while
  they are tried again.
- A forked child closes its copy of the connection, so that the engine sees this process end.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from guerdon._lanes.remote.shared_engine.agent_start import AgentOptions, start
from guerdon._lanes.remote.shared_engine.joining import join
from guerdon._lanes.remote.shared_engine.meeting import JoinError, Meeting, meeting_of
from guerdon._system import cpu_count, launcher
from guerdon.errors import GuerdonWarning

if TYPE_CHECKING:
    from guerdon._lanes.remote.engine_setup import EngineSetup
    from guerdon._native import Carrier, Engine

__all__ = ["SharedEngine"]

SILENCE_S: Final = 10.0
# Time that the connection has to close once it is not used.
_CLOSE_S: Final = 1.0


class SharedEngine:
    """The engine that the ranks of this host share; see the module."""

    def __init__(self, workers: int, names: Sequence[str]) -> None:
        self._workers = workers
        self._names = names
        self._meeting: Meeting | None = None
        # Written by `start`, read by a forked child.
        self.carrier: Carrier | None = None
        _joined.add(self)

    def start(self, engine: Engine, setup: EngineSetup) -> None:
        """Joins the engine of the host, or starts it."""
        from guerdon import _native

        rank = f"rank {launcher.rank()}, process {os.getpid()}"
        try:
            meeting = self._meeting = meeting_of(setup.digest, self._names)
            cores = cpu_count.host_cores()
            options = AgentOptions(meeting, setup.digest, setup.data, self._workers, cores, rank)
            joined = join(meeting, setup.digest, rank, lambda: _native.reap_child(start(options)))
        except JoinError as error:
            engine.add_node("the engine of this host").lost(str(error), innocent=True)
            return
        with contextlib.closing(joined.connection), joined.peer as peer:
            link = engine.add_node(f"the engine of this host, process {peer.process}")
            self.carrier = _native.carry(
                link,
                joined.connection.detach(),
                process=peer.process,
                handle=peer.detach(),
                patience=SILENCE_S,
            )
        if joined.started:
            self._report_others(meeting)

    def _report_others(self, meeting: Meeting) -> None:
        """Warns if this engine was started although another was probably meant."""
        mine = {one._meeting.socket for one in _joined if one._meeting is not None}
        if others := [path for path in meeting.others() if path not in mine]:
            warnings.warn(
                f"the ranks of this host have {len(others) + 1} engines, with {self._workers} workers each, because their "
                f"reward functions {', '.join(map(repr, self._names))} are not the same on all of them: they differ in code, "
                "options, worker_env, or in a global that they name, such as a rank's number or device. Give such "
                "values as arguments, or fewer workers.",
                GuerdonWarning,
                stacklevel=2,
            )

    def stop(self) -> None:
        """Waits until the connection is closed, and removes what an engine that was killed left."""
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            carrier.wait(_CLOSE_S)
        if self._meeting is not None:
            self._meeting.remove_if_stale()

    def forget(self) -> None:
        """Runs in a forked child: leaves the connection to the parent."""
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            carrier.close_inherited()


_joined: weakref.WeakSet[SharedEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for cluster in list(_joined):
        cluster.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
