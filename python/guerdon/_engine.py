"""The engine of one dispatcher: started once, ended once, never shared with a forked child.

- After `close` there is no engine any more, and asking for one is a `ClosedError`.
- A forked child starts an engine of its own; the inherited one has lost its threads, so it is
  neither used nor ended. The engine ends with its dispatcher, and at the exit of the interpreter.
- Code on a thread that is starting the engine (a signal handler) may close or use it: it
  waits for nothing, and an engine that was started too late is ended.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from guerdon._registration.spec import FunctionSpec
from guerdon.errors import ClosedError, GuerdonError, MainGuardError, RegistrationError

if TYPE_CHECKING:
    from guerdon._lanes import ThreadSupervisor
    from guerdon._native import Engine, OutcomeStore, SpendingCap
    from guerdon.dump import Dump
    from guerdon.recycling import Recycle

CLOSE_TIMEOUT_S = 5.0
# At exit nobody waits for a thread that is stuck in user code: it ends with the interpreter.
EXIT_TIMEOUT_S = 1.0


def _refuse_to_run_without_the_gil() -> None:
    # A free-threaded interpreter turns the GIL on when it imports the extension, and says so;
    # unless it was told not to.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise GuerdonError(
            "Guerdon's engine does not support running without the GIL yet, and PYTHON_GIL=0 or -X gil=0 keeps it off. "
            "Leave that setting out: a free-threaded interpreter then turns the GIL on for Guerdon."
        )


class EngineHandle:
    """Starts and ends the engine of a list of functions."""

    def __init__(
        self,
        specs: Sequence[FunctionSpec],
        workers: int,
        recycle: Recycle | None = None,
        worker_env: Mapping[str, str | None] | None = None,
        max_cost: float | None = None,
    ) -> None:
        _refuse_to_run_without_the_gil()
        self._specs = tuple(specs)
        self._workers = workers
        self._recycle = recycle
        self._worker_env = worker_env or {}
        self._max_cost = max_cost
        self._closed = False
        # Both written under the lock, and after a fork by the child's only thread.
        self._engine: Engine | None = None
        self._supervisor: ThreadSupervisor | None = None
        self._lock = threading.RLock()  # a signal handler may come here on the thread that holds it
        self._at_end: weakref.finalize[..., object] | None = None
        _alive.add(self)

    def end_with(self, owner: object) -> None:
        """Closes it when `owner` is collected, or at exit."""
        self._at_end = weakref.finalize(owner, _end, self, os.getpid())

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def started(self) -> Engine | None:
        """The running engine, if there is one."""
        return self._engine

    def worker_setup(self) -> WorkerSetup:
        """What workers are started with."""
        return _worker_setup(self._specs, self._worker_env)

    def dump(self, timeout: float) -> Dump:
        """What the engine is doing; takes no lock and starts nothing."""
        from guerdon.dump import take  # loaded with the engine: no import in a signal handler

        return take(self._engine, self._supervisor, self._specs, timeout)

    def get(self) -> Engine:
        """The engine, started if need be.

        Raises:
            ClosedError: The dispatcher was closed.
            MainGuardError: multiprocessing imports the program for a child, or a worker a module.
        """
        engine = self._engine
        if engine is not None and not self._closed:
            return engine
        with self._lock:
            self._refuse_closed()
            if self._engine is None:
                _refuse_child_import()
                engine, supervisor = _start(self._specs, self._workers, self._recycle, self._worker_env, self._max_cost)
                if self._closed or self._engine is not None:  # a signal handler was quicker
                    engine.close(CLOSE_TIMEOUT_S)
                    self._refuse_closed()
                else:
                    self._engine, self._supervisor = engine, supervisor
            assert self._engine is not None
            return self._engine

    async def astart(self, owner: object) -> None:
        """`get` beside the running loop, which would stand still for as long as a start takes.

        Args:
            owner: The dispatcher, held meanwhile: else the collector could end it within the lock
                of that start.
        """
        if self._engine is None:
            import asyncio

            await asyncio.get_running_loop().run_in_executor(None, lambda: (self.get(), owner))

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ClosedError("this dispatcher is closed. Make a new one, or close it later.")

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Ends the engine; open batches become cancelled. Does nothing the second time."""
        with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
            supervisor, self._supervisor = self._supervisor, None
            at_end, self._at_end = self._at_end, None
        if at_end is not None:
            # A closed dispatcher can be collected together with functions that refer to it.
            at_end.detach()
        if engine is not None and supervisor is not None:
            from guerdon._lanes import is_lane_thread

            engine.close(0.0 if is_lane_thread(supervisor.lanes) else timeout)

    def forget(self) -> None:
        """In a forked child: leaves the parent's engine alone."""
        self._lock = threading.RLock()
        if self._engine is not None:
            _inherited.append((self._engine, self._supervisor))
            self._engine = self._supervisor = None


# Every `EngineHandle` there is; each adds itself, and leaves when its dispatcher is gone.
_alive: weakref.WeakSet[EngineHandle] = weakref.WeakSet()
# Engines of a parent process: kept, because dropping one would wait for threads that this process
# doesn't have.
_inherited: list[tuple[Engine, ThreadSupervisor | None]] = []


def _end(handle: EngineHandle, pid: int) -> None:
    # A child that was forked later runs the same finalizers at its own exit: what it started itself
    # it ends, the rest is its parent's.
    if os.getpid() == pid or handle.started is not None:
        handle.close(EXIT_TIMEOUT_S)


def _refuse_child_import() -> None:
    """Refuses while multiprocessing or a worker imports a module that scores without a guard.

    Each child would score all over again; the workers of a worker's dispatcher would too.
    """
    loading = sys.modules.get("_guerdon_worker.loaded_functions")
    if getattr(loading, "under_way", False):
        raise MainGuardError(
            "this module submits a batch while a worker imports it for a reward function, which would score "
            "everything again. Move what the program does, unlike what it defines, under "
            'if __name__ == "__main__": or into another file.'
        )
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise MainGuardError(
            "the program submits a batch while multiprocessing imports it for a child process, which would score "
            "everything again. Move what the program does, unlike what it defines, under "
            'if __name__ == "__main__":'
        )


def _start(
    specs: Sequence[FunctionSpec],
    workers: int,
    recycle: Recycle | None,
    worker_env: Mapping[str, str | None],
    max_cost: float | None,
) -> tuple[Engine, ThreadSupervisor]:
    import guerdon.dump  # noqa: F401 - for `EngineHandle.dump`
    from guerdon import _native
    from guerdon._lanes import start_lanes

    positions = {spec.name: position for position, spec in enumerate(specs)}
    cap = None if max_cost is None else _cap(specs, max_cost)
    caches: Mapping[str, tuple[OutcomeStore, bytes]] = {}
    if any(spec.cache is not None for spec in specs):
        from guerdon._cache.folders import open_caches

        caches = open_caches(specs)
    configs = [spec.config(positions, cap, caches.get(spec.name)) for spec in specs]
    setup = _worker_setup(specs, worker_env)
    try:
        engine = _native.Engine(
            configs,
            workers=workers,
            python=setup.python,
            worker_dir=setup.folder,
            serialized_functions=setup.functions,
            environment=setup.environment,
            recycle=(None, None, None) if recycle is None else (recycle.calls, recycle.age, recycle.rss_bytes),
        )
    except ValueError as error:
        raise RegistrationError(f"this dispatcher can't start: {error}.") from None
    try:
        return engine, start_lanes(engine, specs)
    except BaseException:
        engine.close(CLOSE_TIMEOUT_S)
        raise


def _cap(specs: Sequence[FunctionSpec], max_cost: float) -> SpendingCap:
    """What the functions that have a price may spend together."""
    from guerdon._http.cost import cap

    members = [member.spec for spec in specs for member in getattr(spec.compound, "members", ())]
    priced = [spec for spec in (*specs, *members) if spec.http is not None and spec.http.cost.price is not None]
    limits = [spec.policy.limit for spec in priced]
    return cap(max_cost, "of the dispatcher", [limit.key for limit in limits if limit is not None and limit.key])


class WorkerSetup(NamedTuple):
    """What workers are started with: interpreter, folder of their program, functions (None without
    any for them) and environment."""

    python: str
    folder: str
    functions: bytes | None
    environment: list[tuple[bytes, bytes]]


def _worker_setup(specs: Sequence[FunctionSpec], worker_env: Mapping[str, str | None]) -> WorkerSetup:
    from guerdon import _worker_environment
    from guerdon._serialization.serialized_functions import serialize

    # The key of a judge is no worker's, whatever its variable is called.
    keys = {plan.secret.env for spec in specs for plan in spec.plans if plan.secret.env is not None}
    worker_env = {**dict.fromkeys(keys), **worker_env}
    return WorkerSetup(
        python=sys.executable,
        folder=str(Path(__file__).parent / "_worker"),
        functions=serialize(specs, _worker_environment.hidden(worker_env)),
        environment=_worker_environment.of_workers(worker_env),
    )


def _after_fork() -> None:
    for handle in list(_alive):
        handle.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
