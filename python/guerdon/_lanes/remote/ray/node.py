"""One node's agent, as the driver has it: started, checked, opened again after a loss.

- A node that is lost is tried again for as long as Ray lists it; one whose functions can't run is
  not. A node whose thread ended for another reason has `ended` set, and is begun again.
- All its threads end with `end`, and so does its actor, whichever it is by then.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guerdon._lanes.remote.ray import released
from guerdon._lanes.remote.ray.pump import Pump
from guerdon._lanes.remote.ray.reasons import is_refusal, reason_of
from guerdon._lanes.remote.ray.starting import start_actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from guerdon._lanes.remote.ray.nodes import RayNode
    from guerdon._native import Engine

__all__ = ["Node", "NodeContext"]

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_FAILURES_REPORTED: Final = 3
"""Number of failures in a row after which the user is warned."""


class NodeContext(NamedTuple):
    """State that all nodes of one engine share."""

    engine: Engine
    setup: Any  # a reference to the bytes of the `EngineSetup`
    folder: str  # of the driver
    check_timeout: float  # seconds for functions to be ready, including setup()
    patience: float  # seconds for a start with its check
    warn: Callable[[str], None]


class Node:
    """The agent on one node.

    Args:
        place: Where.
        cpus: Its workers.
        reserve: Whether it reserves so many CPUs in Ray.
        shared: What all nodes of the engine have in common.
    """

    def __init__(self, place: RayNode, cpus: int, *, reserve: bool, shared: NodeContext) -> None:
        self.place = place
        self.cpus = cpus
        self._reserved = cpus if reserve else 0
        self._shared = shared
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._session = 0
        # Guards the state below; not held while a call of the actor is waited for.
        self._lock = threading.Lock()
        self._actor = start_actor(place.id, self._reserved)
        released.reserve(place, self._reserved)
        self._ended = False
        self._pump: Pump | None = None
        self._draining = False
        self._failed = False
        self.refused: str | None = None
        """Why it is not used any more."""

    def versions(self, source: str) -> Any:
        """Returns a reference to the versions installed there."""
        return self._actor.versions.remote(source)

    def open(self) -> Any:
        """A reference to the answer of an agent that begins."""
        self._session += 1
        return self._actor.open.remote(
            self._session, self._shared.setup, self.cpus, self._shared.folder, self._shared.check_timeout
        )

    def begin(self) -> None:
        """Hands it to the engine, after `open`, and starts its threads; not where it is to end by
        now."""
        if self._connect():
            name = f"guerdon-{self.place.name}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._thread = thread

    def drain(self) -> None:
        """Gives it no more calls: the node is to end."""
        with self._lock:
            if self._draining:
                return
            self._draining = True
            if self._pump is not None:
                self._pump.innocent = True
                self._drain_engine()

    def fail(self) -> None:
        """It could not be begun, for a reason that may pass."""
        self._failed = True

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def drained(self) -> bool:
        """Returns whether it was drained and runs nothing."""
        return self._draining and (self._thread is None or not self._thread.is_alive())

    @property
    def ended(self) -> bool:
        """Returns whether it is of no more use, though its node is there: it may be begun again."""
        return self._failed or (self._thread is not None and not self._thread.is_alive() and not self._draining)

    def lose(self, reason: str) -> None:
        """The node is gone."""
        self._stopped.set()
        if self._pump is not None:
            self._pump.lose(reason)

    def end(self) -> None:
        """Lets the agent go; does not wait for its threads."""
        with self._lock:
            self._stopped.set()
            actor = self._actor
            ended, self._ended = self._ended, True
        _kill(actor)
        if not ended:
            released.release(self.place.id, self._reserved)

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _connect(self) -> bool:
        """Returns whether it has a link now; not where it is to end.

        Raises:
            ValueError: The engine was closed, or has a node of that name.
        """
        with self._lock:
            if self._stopped.is_set() or self._draining:
                return False
            link = self._shared.engine.add_node(self.place.name)
            self._pump = Pump(self._actor, self._session, link, self._hang_up)
            return True

    def _drain_engine(self) -> None:
        # It may have lost the node meanwhile.
        with contextlib.suppress(ValueError):
            self._shared.engine.drain_node(self.place.name)

    def _run(self) -> None:
        while self._pump is not None:
            self._pump.run()
            if self._stopped.is_set() or self._draining or not self._again():
                return
            try:
                if not self._connect():
                    return
            except Exception as error:
                # the engine was closed meanwhile, else the watcher begins it again
                if not self._stopped.is_set():
                    self._shared.warn(f"node {self.place.name} could not be used again: {error}")
                return

    def _again(self) -> bool:
        """Opens another session, with the agent that Ray starts in place of the lost one."""
        import ray

        pause, failures = _FIRST_PAUSE_S, 0
        while not self._stopped.wait(pause):
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            try:
                ray.get(self.open(), timeout=self._shared.patience)
            except Exception as error:
                if not ray.is_initialized():
                    return False
                if is_refusal(error):
                    self.refused = reason_of(error)
                    self._shared.warn(f"node {self.place.name} is not used any more: {self.refused}")
                    return False
                failures += 1
                if failures == _FAILURES_REPORTED and not self._stopped.is_set():
                    self._shared.warn(
                        f"node {self.place.name} has failed to start an agent {failures} times, and is tried again every "
                        f"{_LONGEST_PAUSE_S:g} s: {reason_of(error)}"
                    )
                self._replace(error)
            else:
                return not self._stopped.is_set()
        return False

    def _replace(self, error: Exception) -> None:
        """Sees to an actor that can answer, after one that did not."""
        import ray

        if isinstance(error, ray.exceptions.GetTimeoutError):
            self._hang_up()
        elif isinstance(error, ray.exceptions.ActorDiedError):
            new = start_actor(self.place.id, self._reserved)
            with self._lock:
                kept = not self._stopped.is_set()
                if kept:
                    self._actor = new
            if not kept:  # `end` has come meanwhile, and did not see it
                _kill(new)

    def _hang_up(self) -> None:
        """Ends the agent; Ray starts another, unless the node is to end."""
        _kill(self._actor, restart=not (self._stopped.is_set() or self._draining))


def _kill(actor: Any, *, restart: bool = False) -> None:
    import ray

    # It is gone, or Ray is.
    with contextlib.suppress(Exception):
        ray.kill(actor, no_restart=not restart)
