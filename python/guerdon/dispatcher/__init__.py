"""The dispatcher: a list of reward functions, and the engine that runs them.

- Options that can't work are refused when the dispatcher is made.
- Nothing starts before the first use; everything ends with `close`, with the dispatcher itself
  (reference counts alone: nothing that it holds refers to it), or at exit.
- Pickles and copies hold its configuration, and the attributes that a subclass added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from guerdon._batch.result_builder import ResultBuilder
from guerdon._batch.single_samples import SampleScorer
from guerdon._batch.submission import Submitter
from guerdon._batch.trainer.batches import TrainerBatches
from guerdon._batch.trainer.column import RewardColumn, RewardList
from guerdon._batch.trainer.reward_columns import RewardColumns
from guerdon._engine import dispatcher_options
from guerdon._engine.handle import EngineHandle
from guerdon._functions.callables import is_reward_model
from guerdon._functions.function_list import checked_items, spread
from guerdon._functions.spec import with_members
from guerdon._insight.monitor.address import checked as checked_address
from guerdon.dispatcher.cluster_option import checked_cluster, with_limits, workers_and_cluster
from guerdon.dispatcher.functions import checked_specs
from guerdon.dispatcher.scoring import ScoringMethods
from guerdon.dispatcher.stats import stats_by_name
from guerdon.errors import raised_at_the_call, with_known_options

if TYPE_CHECKING:
    import os
    from os import PathLike
    from typing import Self

    from guerdon._batch.debugger import Debugger
    from guerdon._batch.kept_columns import KeptColumns
    from guerdon._batch.trainer.metrics import LogMetrics
    from guerdon._insight.dump import Dump
    from guerdon._insight.journal.options import Journal
    from guerdon._insight.journal.plan import JournalPlan
    from guerdon._insight.trace import Trace
    from guerdon._lanes.http.endpoints import Endpoints
    from guerdon._lanes.recycling import Recycle
    from guerdon._lanes.remote.factory import ClusterOption

# Attributes of `Dispatcher.__init__`; all other attributes are a subclass's own.
_STATE = frozenset(
    (
        "_builder",
        "_columns",
        "_debugger",
        "_engine",
        "_items",
        "_options",
        "_reward_list",
        "_sample_scorer",
        "_specs",
        "_submitter",
        "_trainer_batches",
        "workers",
    )
)

_BARE = "this is a Dispatcher, not one reward function: pass dispatcher.reward_funcs as reward_funcs"


@with_known_options
class Dispatcher(ScoringMethods):
    """Runs reward functions concurrently, in order, with deadlines that hold.

    Args:
        functions: Reward functions: decorated ones, `StatefulReward` instances, undecorated
            functions of TRL's batch contract, and reward models (an ``nn.Module`` or a model name),
            which are left to the trainer.
        weights: One per entry of `functions`, for `RewardBatch.total` and for the trainer's
            ``reward_weights``; all 1 by default. A rubric's multiplies those of its criteria.
        workers: Processes of the process lane; by default this rank's share of the cores that the
            host, or its container, may use.
        num_generations: Completions per prompt, where neither the call nor the trainer says it.
        max_failure_rate: A larger share of failures than this in a function's last 256 samples,
            once there are 64, raises `RewardFailureError`, as does a batch of at least 8 in which
            all failed. 0 to 1, at which nothing raises; a function's own value goes first.
        batch_timeout: Seconds that a whole batch may take; what isn't finished then is `timeout`.
        incomplete: ``"drop"``: a sample on which a function failed has no reward at all. ``"sum"``:
            it has the sum of what is left.
        recycle: When workers of the process lane are replaced that could go on; never by default.
        worker_env: Variables of the environment for all workers, and with None those to keep from
            them. By default workers have the trainer's environment without what looks like secrets
            (API keys, tokens, passwords: docs/isolation.md), and libraries start no threads in them
            (``OMP_NUM_THREADS=1`` and others) unless the trainer's environment says so.
        max_cost: What the requests of all functions with a ``price=`` may cost together in a run:
            calls beyond it fail at once (docs/options.md).
        metrics_port: Serve metrics for Prometheus (docs/metrics.md) on this port of 127.0.0.1, 0
            for any that is free, or on an address such as ``"0.0.0.0:9100"``. Each rank of a host
            takes the next port. Where it is in use, that is warned of, and nothing else happens.
        journal: A folder that every outcome is written to, as Parquet, or a `Journal` that says
            more (docs/journal.md). Rows have the step of the batch's ``trainer_state``.
        watchdog: Seconds after which a dump comes as a `GuerdonWarning`, because calls are in
            flight and none has ended; never by default (docs/top.md).
        trace: A file for the timeline of the calls, for Perfetto (docs/timeline.md), or a `Trace`.
        cluster: Where functions of the process lane run in place of this process's workers.
            ``"host"``: in an engine that all ranks of this host share (docs/ranks.md);
            `workers` are then those of all of them, by default one for each core that they may use
            together. A `Ray`: on the nodes of a Ray cluster (docs/cluster.md); `workers` take over
            when no node is left.
        debug: Python functions run one after another in the thread that waits for the batch, so
            that ``breakpoint()`` works in them, and without timeouts (docs/failures.md).
        log_metrics: Of each function in a trainer's log: six metrics, or ``"all"``
            (docs/metrics.md).

    Raises:
        RegistrationError: The list, one of its functions or an option can't work.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> with Dispatcher([reward(lambda text: float(len(text)), name="length")]) as dispatcher:
        ...     dispatcher.score(completions=["a", "bcd"], num_generations=2).rewards.tolist()
        [[[1.0], [3.0]]]
    """

    @raised_at_the_call
    def __init__(
        self,
        functions: Iterable[object],
        *,
        weights: Sequence[float] | None = None,
        workers: int | None = None,
        num_generations: int | None = None,
        max_failure_rate: float = 0.5,
        batch_timeout: float | None = None,
        incomplete: Literal["drop", "sum"] = "drop",
        recycle: Recycle | None = None,
        worker_env: Mapping[str, str | None] | None = None,
        max_cost: float | None = None,
        metrics_port: int | str | None = None,
        journal: str | PathLike[str] | Journal | None = None,
        watchdog: float | None = None,
        trace: str | os.PathLike[str] | Trace | None = None,
        cluster: ClusterOption | None = None,
        debug: bool = False,
        log_metrics: LogMetrics = "main",
    ) -> None:
        entries = checked_items(functions, Dispatcher, RewardColumn)
        items, spread_weights = spread(entries, dispatcher_options.weights(weights, len(entries)))
        self._options: dict[str, Any] = {
            "weights": spread_weights,
            "workers": dispatcher_options.whole("workers", workers, dispatcher_options.MOST_WORKERS),
            "num_generations": dispatcher_options.whole(
                "num_generations", num_generations, dispatcher_options.MOST_GENERATIONS
            ),
            "max_failure_rate": dispatcher_options.fraction("max_failure_rate", max_failure_rate),
            "batch_timeout": dispatcher_options.seconds("batch_timeout", batch_timeout),
            "incomplete": dispatcher_options.incomplete(incomplete),
            "recycle": dispatcher_options.recycle(recycle),
            "worker_env": dispatcher_options.worker_env(worker_env),
            "max_cost": dispatcher_options.max_cost(max_cost),
            "metrics_port": checked_address(metrics_port),
            "journal": dispatcher_options.journal(journal),
            "watchdog": dispatcher_options.seconds("watchdog", watchdog),
            "trace": dispatcher_options.trace(trace),
            "cluster": checked_cluster(cluster),
            "debug": dispatcher_options.flag("debug", debug),
            "log_metrics": dispatcher_options.log_metrics(log_metrics),
        }
        self._items = items
        self._specs = with_limits(self._options["cluster"], checked_specs(items, max_cost))
        workers_now, own_workers, make_cluster = workers_and_cluster(
            self._options["workers"], self._options["cluster"], with_members(self._specs)
        )
        run_specs = with_members(self._specs)
        self._debugger: Debugger | None = None
        if debug:
            from guerdon._batch.debugger import Debugger  # loads asyncio

            self._debugger = Debugger()
            run_specs = self._debugger.specs(run_specs)
        self.workers: int = workers_now
        pairs = zip(self.reward_weights, items, strict=True)
        ours = tuple(weight for weight, item in pairs if not is_reward_model(item))
        journal_plan, kept = self._journal(ours)
        self._engine = EngineHandle(
            self._specs,
            own_workers,
            self._options["recycle"],
            self._options["worker_env"] or {},
            self._options["max_cost"],
            self._options["metrics_port"],
            journal=journal_plan,
            watchdog=None if debug else self._options["watchdog"],
            trace=self._options["trace"],
            cluster=None if debug else make_cluster,
            run_specs=run_specs,
        )
        if self._debugger is not None:
            self._debugger.ends_with(self._engine)
        num_generations, batch_timeout = self._options["num_generations"], self._options["batch_timeout"]
        self._reward_list = RewardList.of(items, self._options["weights"])
        models = self._reward_list.models
        self._submitter = Submitter(
            self._engine, run_specs, models, num_generations, batch_timeout, kept, debugged=debug
        )
        self._builder = ResultBuilder(
            self._specs,
            ours,
            self._options["incomplete"],
            self._options["max_failure_rate"],
            self._submitter.example,
        )
        self._trainer_batches = TrainerBatches(
            self, self._engine, self._submitter, self._builder, self._reward_list, self._options["log_metrics"]
        )
        self._columns = RewardColumns(items, self.names, self._reward_list, self._trainer_batches.collect)
        self._sample_scorer = SampleScorer(self._engine, self._submitter, self._builder)
        self._engine.end_with(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reward functions, in order, without reward models."""
        return tuple(spec.name for spec in self._specs)

    @property
    def options(self) -> Mapping[str, Any]:
        """The dispatcher's checked options; None where it was left to the default.

        It has only the names of ``worker_env``, in a tuple: the values may be secrets.
        """
        env = self._options["worker_env"]
        return MappingProxyType({**self._options, "worker_env": None if env is None else tuple(env)})

    @property
    def reward_funcs(self) -> list[Any]:
        """Entries for a trainer's ``reward_funcs``: a column per function, reward models as they
        are.

        Each column is a callable with a unique ``__name__`` that obeys TRL's batch contract. The
        first one called with a batch starts all functions on it; the others only collect.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> [column(completions=["a", "bcd"]) for column in dispatcher.reward_funcs]
            [[1.0, 3.0]]
        """
        return self._columns.of(self)

    @property
    def reward_weights(self) -> list[float]:
        """One weight per entry of the list, for the trainer's ``reward_weights``."""
        given: list[float] | None = self._options["weights"]
        return [1.0] * len(self._items) if given is None else list(given)

    @property
    def reward_models(self) -> tuple[str, ...]:
        """Names of the reward models in the list, which the trainer runs itself."""
        return self._reward_list.models

    @property
    def closed(self) -> bool:
        """Returns whether it was closed, and takes no batch any more."""
        return self._engine.closed

    def replace(self, **options: Any) -> Dispatcher:
        """A dispatcher of the same functions with some options changed; it has a separate engine.

        Raises:
            RegistrationError: As for a new dispatcher.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> few = Dispatcher([reward(lambda text: 1.0, name="one")], workers=2)
            >>> few.replace(workers=3).workers
            3
        """
        return _restore(type(self), self._items, {**self._options, **options}, self._own_state())

    def close(self) -> None:
        """End the engine, its workers and threads; batches under way become cancelled."""
        self._engine.close()
        if self._debugger is not None:
            self._debugger.close()

    def stats(self) -> dict[str, Any]:
        """Counters of the engine since its start (worker restarts, kills, abandoned threads,
        requests that failed over or were hedged, …); empty before the first use.

        If functions are pure or have a ``cache=`` folder, ``"cache"`` has for each, by name, the
        number of samples that needed no call: ``"shared"`` got the outcome of an identical call,
        ``"hits"`` were found in the folder, ``"misses"`` looked up in vain; ``"cache_bytes"`` is
        what outcomes take in the folders, ``"cache_dropped"`` counts those that the disk did not
        take (docs/options.md).

        ``"state_socket"`` is where `guerdon top` finds it, ``"metrics_address"`` where the metrics
        are served (with ``metrics_port=``), ``"trace_file"`` the timeline (with ``trace=``), or
        each why not.

        If there is a journal, ``"journal_rows"`` and ``"journal_bytes"`` are on disk;
        ``"journal_dropped"`` counts rows that the disk did not take or that came too fast for it.

        If there are judges or reward services, ``"usage"`` has the usage of each so far, by name,
        as `RewardBatch.usage` does for one batch.

        If there is a cluster, ``"nodes"`` has for each node, by name: its ``"state"``
        (``"connecting"``, ``"ready"``, ``"draining"`` or ``"lost"``), its ``"slots"`` (workers),
        the ``"calls"`` that it has in hand or in its queue, how many it ``"ended"``, the
        ``"reason"`` why it was lost, and what its workers did: ``"worker_restarts"``, ``"kills"``.
        """
        engine = self._engine.started
        if engine is None:
            return {}
        on_nodes = self._options["cluster"] is not None
        by_name = stats_by_name(engine, self._specs, self._builder.priced, on_nodes=on_nodes)
        return {**engine.stats(), **self._engine.served(), **by_name}

    def dump(self, timeout: float = 1.0) -> Dump:
        """Returns the calls in flight now, each with its age, its worker and its Python stack:
        ``print(dispatcher.dump())``.

        It disturbs nothing and may be called from any thread, in a signal handler too, while a
        batch is waited for.

        Args:
            timeout: Seconds that it may take. A worker that does not say in time where it stands is
                shown without stack.

        Raises:
            RegistrationError: `timeout` is not a number of seconds.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> with Dispatcher([reward(lambda text: float(len(text)), name="length")]) as dispatcher:
            ...     print(dispatcher.dump())
            0 calls in flight, 0 worker processes alive
        """
        return self._engine.dump(dispatcher_options.bound("timeout", timeout))

    def endpoints(self, function: str, member: str | None = None) -> Endpoints:
        """The endpoints of a judge or reward service: their state, and `Endpoints.set` to replace
        them while it runs.

        Args:
            function: Its name; any column of a rubric stands for all of them.
            member: Of a panel, cascade or fallback: whose endpoints.

        Raises:
            ValueError: There is no such function or member, or it sends no requests.

        Examples:
            >>> from guerdon import Dispatcher, judge
            >>> helpful = judge(base_url="http://localhost:8000/v1", model="m", prompt="{completion}", name="helpful")
            >>> print(Dispatcher([helpful]).endpoints("helpful"))
            endpoints of 'helpful':
              http://localhost:8000/v1: breaker closed, 0 in flight, 0 answered, 0 failed
        """
        # Not loaded where no function has any.
        from guerdon._lanes.http.endpoints import endpoints_in

        return endpoints_in(self._specs, function, member, self._engine)

    def worker_pids(self) -> list[int]:
        """Process ids of the workers alive."""
        engine = self._engine.started
        return [] if engine is None else engine.worker_pids()

    def _journal(self, weights: tuple[float, ...]) -> tuple[JournalPlan | None, KeptColumns | None]:
        """Returns the journal's settings for the engine, and the columns that it keeps."""
        journal = self._options["journal"]
        if journal is None:
            return None, None
        from guerdon._batch.kept_columns import KeptColumns
        from guerdon._insight.journal.plan import JournalPlan

        return JournalPlan(journal, weights, self._options["incomplete"], self.workers), KeptColumns(
            texts=journal.texts, columns=journal.columns
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Dispatcher], tuple[Any, ...]]:
        return _restore, (type(self), self._items, self._options, self._own_state())

    def _own_state(self) -> dict[str, Any]:
        """Returns attributes that a subclass added."""
        return {name: value for name, value in vars(self).items() if name not in _STATE}

    # A stock trainer that was given the dispatcher itself reads ``__name__`` before training, or
    # calls the dispatcher. Both raise an error that explains what to do.
    @property
    def __name__(self) -> str:
        raise TypeError(_BARE)

    def __call__(self, *args: object, **columns: object) -> NoReturn:
        raise TypeError(_BARE)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "running" if self._engine.started is not None else "not started"
        functions = ", ".join(f"{spec.name} ({spec.lane})" for spec in self._specs)
        cluster = self._options["cluster"]
        nodes = "" if cluster is None else f"cluster={cluster!r}, "
        return f"<Dispatcher of {functions}; {nodes}{self.workers} workers, {state}>"


def _restore(
    kind: type[Dispatcher], items: tuple[object, ...], options: dict[str, Any], state: dict[str, Any]
) -> Dispatcher:
    """A dispatcher of the class `kind`, made without its ``__init__``, whose parameters are the
    subclass's own affair."""
    restored = kind.__new__(kind)
    Dispatcher.__init__(restored, items, **options)
    vars(restored).update(state)
    return restored
