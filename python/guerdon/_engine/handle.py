"""The engine of one dispatcher: started once, ended once, never shared with a forked child.

- After `close` the engine is gone, and a request for one is a `ClosedError`.
- A forked child starts its own engine; the inherited one has lost its threads, so it is neither
  used nor ended. The engine ends with its dispatcher, and at the exit of the interpreter.
- Code on a thread that is starting the engine (a signal handler) may close or use it: it
  waits for nothing, and an engine that was started too late is ended.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from guerdon._functions.spec import FunctionSpec, with_members
from guerdon._lanes import recycling
from guerdon._lanes.gil import need_gil
from guerdon._system.cpu_count import allowed_cores, on_cores, warn_if_bound
from guerdon.errors import ClosedError, MainGuardError, RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.lane_plan import Keys
    from guerdon._insight.diagnostics.stalls import StallReports
    from guerdon._insight.dump import Dump
    from guerdon._insight.journal.plan import JournalConfig, JournalPlan
    from guerdon._insight.monitor.settings import Monitor
    from guerdon._insight.trace import Trace
    from guerdon._lanes.http.api_key import KeyThreads
    from guerdon._lanes.remote.engine_setup import EngineSetup
    from guerdon._lanes.remote.plan import Cluster, ClusterFactory
    from guerdon._lanes.thread_supervisor import ThreadSupervisor
    from guerdon._native import Engine

CLOSE_TIMEOUT_S = 5.0
# A thread that is stuck in user code delays the interpreter's exit for this long at most.
EXIT_TIMEOUT_S = 1.0
# A node that has calls and sends nothing for this long is lost.
_NODE_SILENCE_S = 30.0


class EngineHandle:
    """Starts and ends the engine of a list of functions."""

    def __init__(
        self,
        specs: Sequence[FunctionSpec],
        workers: int,
        recycle: recycling.Recycle | None = None,
        worker_env: Mapping[str, str | None] | None = None,
        max_cost: float | None = None,
        metrics_port: int | str | None = None,
        *,
        journal: JournalPlan | None = None,
        watchdog: float | None = None,
        trace: Trace | None = None,
        cluster: ClusterFactory | None = None,
        run_specs: Sequence[FunctionSpec] | None = None,
    ) -> None:
        self._specs = tuple(specs)
        self._run_specs = with_members(specs) if run_specs is None else tuple(run_specs)
        need_gil(
            beyond_threads=journal is not None
            or any(s.lane != "thread" or s.leaves_process or s.pure or s.is_async for s in self._run_specs)
        )
        self._workers = workers
        self._recycle = recycle
        self._worker_env = worker_env or {}
        self._max_cost = max_cost
        self._metrics_port = metrics_port
        self._journal = journal
        self._watchdog = watchdog
        self._trace = trace
        self._make_cluster = cluster
        # Chosen with the number of workers: a library may bind this thread before the engine
        # starts.
        self._cores = allowed_cores()
        self._closed = False
        # Both written under the lock, and after a fork by the child's only thread.
        self._engine: Engine | None = None
        self._supervisor: ThreadSupervisor | None = None
        self._monitor: Monitor | None = None
        self._cluster: Cluster | None = None
        self._keys: KeyThreads | None = None
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

    def served(self) -> dict[str, str]:
        """Returns the address of the running engine's state by name, or the reason why it is not
        served; empty before its start."""
        engine, monitor = self._engine, self._monitor
        if engine is None or monitor is None:
            return {}
        from guerdon._insight import trace as _trace  # not by `import guerdon`

        return {**monitor.stats(engine), **_trace.where(self._trace, engine)}

    def worker_setup(self) -> WorkerSetup:
        """Returns the settings that workers are started with."""
        return _worker_setup(self._run_specs, self._worker_env)

    def dump(self, timeout: float) -> Dump:
        """Returns a dump of the engine; takes no lock and starts nothing."""
        # Loaded with the engine: a signal handler imports nothing.
        from guerdon._insight.dump import take

        return take(self._engine, self._supervisor, with_members(self._specs), timeout)

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
                from guerdon._insight.monitor.settings import Monitor  # not by `import guerdon`

                monitor = Monitor(with_members(self._specs), self._metrics_port)
                cores = self._cores | allowed_cores()
                warn_if_bound(cores)
                with on_cores(cores):
                    engine, supervisor, cluster, keys = _start(
                        self._run_specs,
                        self._workers,
                        self._recycle,
                        self._worker_env,
                        self._max_cost,
                        monitor,
                        None if self._journal is None else self._journal.config(self._specs),
                        self._stall_reports(),
                        trace=self._trace,
                        make_cluster=self._make_cluster,
                    )
                if self._closed or self._engine is not None:  # a signal handler was quicker
                    _close(engine, cluster, keys, CLOSE_TIMEOUT_S)
                    self._refuse_closed()
                else:
                    self._supervisor, self._monitor, self._cluster, self._keys = supervisor, monitor, cluster, keys
                    self._engine = engine  # last: other threads read it without the lock
                    monitor.report(engine)
                    if self._trace is not None:
                        from guerdon._insight import trace as _trace

                        _trace.report(self._trace, engine)
            assert self._engine is not None
            return self._engine

    def _stall_reports(self) -> StallReports | None:
        if self._watchdog is None:
            return None
        from guerdon._insight.diagnostics.stalls import StallReports, reports_file

        file = None if self._journal is None else reports_file(self._journal.journal.folder)
        return StallReports(self, self._specs, self._watchdog, file)

    async def astart(self, owner: object) -> None:
        """Like `get`, without blocking the running loop for the time of a start.

        Args:
            owner: The dispatcher, held meanwhile: otherwise the collector could end it within the
                lock of that start.
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
            cluster, self._cluster = self._cluster, None
            keys, self._keys = self._keys, None
            at_end, self._at_end = self._at_end, None
        if at_end is not None:
            # A closed dispatcher can be collected together with functions that refer to it.
            at_end.detach()
        if engine is not None and supervisor is not None:
            from guerdon._lanes.lane_threads import is_lane_thread

            _close(engine, cluster, keys, 0.0 if is_lane_thread(supervisor.lanes) else timeout)
            if self._journal is not None:
                supervisor.warn_of_journal(self._journal.journal.folder, engine.journal_troubles())

    def forget(self) -> None:
        """Runs in a forked child: leaves the parent's engine alone."""
        self._lock = threading.RLock()
        if self._engine is not None:
            _inherited.append((self._engine, self._supervisor))
            _inherited_clusters.append(self._cluster)
            self._engine = self._supervisor = self._monitor = self._cluster = self._keys = None


# All existing `EngineHandle`s; each adds itself, and leaves when its dispatcher is gone.
_alive: weakref.WeakSet[EngineHandle] = weakref.WeakSet()
# Engines of a parent process: kept, because dropping one would wait for threads that this process
# doesn't have.
_inherited: list[tuple[Engine, ThreadSupervisor | None]] = []
_inherited_clusters: list[Cluster | None] = []


def _end(handle: EngineHandle, pid: int) -> None:
    # A child that was forked later runs the same finalizers at its own exit: it ends its own
    # engines, and leaves the others to the parent.
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
    recycle: recycling.Recycle | None,
    worker_env: Mapping[str, str | None],
    max_cost: float | None,
    monitor: Monitor,
    journal: JournalConfig | None,
    stall_reports: StallReports | None,
    *,
    trace: Trace | None = None,
    make_cluster: ClusterFactory | None = None,
) -> tuple[Engine, ThreadSupervisor, Cluster | None, KeyThreads]:
    import guerdon._insight.dump  # noqa: F401 - for `EngineHandle.dump`
    from guerdon import _native
    from guerdon._lanes.http.api_key import KeyThreads
    from guerdon._lanes.thread_supervisor import start_lanes

    positions = {spec.name: position for position, spec in enumerate(specs) if spec.member_of is None}
    members: dict[str, list[int]] = {}
    for position, spec in enumerate(specs):
        if spec.member_of is not None:
            members.setdefault(spec.member_of, []).append(position)
    parsing: dict[int, dict[str, int]] = {}
    for spec in specs:
        if spec.composition is not None:
            # Parsers follow the functions that it calls, in the order of their judges.
            called, of = members.get(spec.name, []), spec.composition.leaves
            judges = [position for position, member in zip(called, of, strict=False) if member.parser is not None]
            for judge, parser in zip(judges, called[len(of) :], strict=True):
                parsing |= {judge: {"by": parser}, parser: {"of": judge}}
    has_nodes = make_cluster is not None and any(spec.leaves_process for spec in specs)
    cap = None if max_cost is None else _cap(specs, max_cost)
    keys: Keys = []
    configs = [
        spec.config(
            positions,
            keys,
            members=members.get(_caller(spec), ()) if spec.member_of is None else (),
            parsing=parsing.get(position),
            has_nodes=has_nodes,
        )
        for position, spec in enumerate(specs)
    ]
    if any(spec.cache is not None for spec in specs):
        from guerdon._functions.cache.folders import folder_config

        for spec, config in zip(specs, configs, strict=True):
            config["cache"] = folder_config(spec)
    setup = _worker_setup(specs, worker_env)
    traced = encode = None
    if journal is not None:
        from guerdon._insight.journal import json_texts

        encode = json_texts.encode
    if trace is not None:
        from guerdon._insight import trace as _trace  # not by `import guerdon`

        traced = _trace.for_engine(trace)
    remote: EngineSetup | None = None
    if has_nodes:
        from guerdon._lanes.remote import engine_setup

        remote = engine_setup.pack(specs, worker_env, recycle, _functions(specs, worker_env, for_nodes=True))
    try:
        engine = _native.Engine(
            {
                "functions": configs,
                "workers": {
                    "workers": workers,
                    "python": os.fsencode(setup.python),
                    "worker_dir": os.fsencode(setup.folder),
                    "serialized_functions": setup.functions or b"",
                    "environment": setup.environment,
                    "recycle": recycling.native(recycle),
                },
                "cap": cap,
                "monitor": monitor.config,
                "journal": journal,
                "watchdog": None if stall_reports is None else stall_reports.config,
                "trace": traced,
                "remote": None if remote is None else {"digest": remote.digest, "silence": _NODE_SILENCE_S},
            },
            encode=encode,
            callbacks=[requests for requests, _ in keys],
        )
    except ValueError as error:
        raise RegistrationError(f"this dispatcher can't start: {error}.") from None
    cluster: Cluster | None = None
    threads: KeyThreads | None = None
    try:
        threads = KeyThreads(keys)
        serves = journal is not None or trace is not None or remote is not None
        supervisor = start_lanes(engine, specs, serves=serves, on_stall=stall_reports)
        if make_cluster is not None and remote is not None:
            cluster = make_cluster()
            cluster.start(engine, remote)
        return engine, supervisor, cluster, threads
    except BaseException:
        _close(engine, cluster, threads, CLOSE_TIMEOUT_S)
        raise


def _close(engine: Engine, cluster: Cluster | None, keys: KeyThreads | None, timeout: float) -> None:
    """Ends an engine, and then what connects it to nodes and gives it keys."""
    try:
        engine.close(timeout)
    finally:
        if cluster is not None:
            cluster.stop()
        if keys is not None:
            keys.close(timeout)


def _caller(spec: FunctionSpec) -> str:
    """The function for which its members are called: of a rubric's columns the first."""
    columns = () if spec.composition is None else spec.composition.columns
    return columns[0] if columns else spec.name


def _cap(specs: Sequence[FunctionSpec], max_cost: float) -> dict[str, Any]:
    """Returns the spending cap that the functions with a price share."""
    from guerdon._lanes.http.cost import cap

    priced = [spec for spec in specs if spec.http is not None and spec.http.cost.price is not None]
    limits = [spec.policy.limit for spec in priced]
    return cap(max_cost, "of the dispatcher", [limit.key for limit in limits if limit is not None and limit.key])


class WorkerSetup(NamedTuple):
    """Settings that workers are started with: interpreter, folder of their program, functions (None
    without any for them) and environment."""

    python: str
    folder: str
    functions: bytes | None
    environment: list[tuple[bytes, bytes]]


def _worker_setup(specs: Sequence[FunctionSpec], worker_env: Mapping[str, str | None]) -> WorkerSetup:
    from guerdon._system import worker_environment

    return WorkerSetup(
        python=sys.executable,
        folder=os.path.join(os.path.dirname(os.path.dirname(__file__)), "_worker"),
        functions=_functions(specs, worker_env),
        environment=worker_environment.of_workers(_without_keys(specs, worker_env)),
    )


def _functions(
    specs: Sequence[FunctionSpec], worker_env: Mapping[str, str | None], *, for_nodes: bool = False
) -> bytes | None:
    """The functions for workers, or for the agents of nodes, to load."""
    from guerdon._functions.serialization.serialized_functions import serialize
    from guerdon._system import worker_environment

    hidden = worker_environment.hidden(_without_keys(specs, worker_env))
    return serialize(specs, hidden, for_nodes=for_nodes)


def _without_keys(specs: Sequence[FunctionSpec], worker_env: Mapping[str, str | None]) -> dict[str, str | None]:
    # No worker gets the key of a judge, for any name of its variable.
    keys = {plan.secret.env for spec in specs for plan in spec.plans if plan.secret.env is not None}
    return {**dict.fromkeys(keys), **worker_env}


def _after_fork() -> None:
    for handle in list(_alive):
        handle.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
