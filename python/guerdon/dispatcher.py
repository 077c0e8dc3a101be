"""The dispatcher: a list of reward functions, and the engine that runs them.

- What can't work is refused when the dispatcher is made; what a batch lacks, before any call.
- Nothing starts before the first use; everything ends with `close`, with the
  dispatcher itself (reference counts alone: nothing that it holds refers to it), or at exit.
- It pickles and is copied as its configuration, a subclass with the attributes that it added.
- An exception in the caller's thread (Ctrl-C) leaves no batch under way that nobody can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from weakref import WeakValueDictionary

from guerdon import _options
from guerdon._cpu_count import default_workers
from guerdon._engine import EngineHandle
from guerdon._registration.conditions import refuse_impossible_conditions
from guerdon._registration.function_list import checked_items, merge_limits, model_name, refuse_repeated_names, spread
from guerdon._registration.spec import is_reward_model, spec_of
from guerdon._result.usage import usage_of
from guerdon._result_builder import ResultBuilder
from guerdon._serialization.serialized_functions import check_serializable
from guerdon._submit.single_samples import SampleScorer
from guerdon._submit.submission import BatchOptions, Submitter
from guerdon._trainer.batches import TrainerBatches
from guerdon._trainer.column import RewardColumn, RewardList, column_class
from guerdon.errors import RegistrationError
from guerdon.pending import OpenBatch, PendingBatch

if TYPE_CHECKING:
    from typing_extensions import Self

    from guerdon._native import Batch
    from guerdon.dump import Dump
    from guerdon.endpoints import Endpoints
    from guerdon.recycling import Recycle
    from guerdon.results import RewardBatch, SampleResult

# What `Dispatcher.__init__` makes; all other attributes are a subclass's own.
_STATE = frozenset(
    (
        "_attributes",
        "_builder",
        "_columns",
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


class Dispatcher:
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
            calls beyond it fail at once (docs/cost.md).

    Raises:
        RegistrationError: The list, one of its functions or an option can't work.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> with Dispatcher([reward(lambda text: float(len(text)), name="length")]) as dispatcher:
        ...     dispatcher.score(completions=["a", "bcd"], num_generations=2).rewards.tolist()
        [[[1.0], [3.0]]]
    """

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
    ) -> None:
        entries = checked_items(functions, Dispatcher, RewardColumn)
        items, spread_weights = spread(entries, _options.weights(weights, len(entries)))
        self._options: dict[str, Any] = {
            "weights": spread_weights,
            "workers": _options.whole("workers", workers, _options.MOST_WORKERS),
            "num_generations": _options.whole("num_generations", num_generations, _options.MOST_GENERATIONS),
            "max_failure_rate": _options.fraction("max_failure_rate", max_failure_rate),
            "batch_timeout": _options.seconds("batch_timeout", batch_timeout),
            "incomplete": _options.incomplete(incomplete),
            "recycle": _options.recycle(recycle),
            "worker_env": _options.worker_env(worker_env),
            "max_cost": _options.max_cost(max_cost),
        }
        self._items = items
        self._specs = tuple(merge_limits(spec_of(item) for item in items if not is_reward_model(item)))
        if not self._specs:
            raise RegistrationError(
                "only reward models are in this list (a string is a model's name), and those a trainer runs itself: "
                "give the list to the trainer as it is."
            )
        refuse_repeated_names(self._specs)
        refuse_impossible_conditions(self._specs)
        if max_cost is not None and not any(plan.cost.price for spec in self._specs for plan in spec.plans):
            raise RegistrationError(
                f"max_cost={max_cost!r}: none of the functions has a price=, by which it is counted."
            )
        if any(spec.cache is not None for spec in self._specs):
            from guerdon._cache.folders import check_folders  # not by `import guerdon`

            check_folders(self._specs)
        for spec in self._specs:
            if spec.lane == "process":
                check_serializable(spec)
            for plan in spec.plans:
                plan.secret.read(spec.name)
        workers_now = self._options["workers"] or default_workers()
        self.workers: int = workers_now
        self._engine = EngineHandle(
            self._specs,
            workers_now,
            self._options["recycle"],
            self._options["worker_env"] or {},
            self._options["max_cost"],
        )
        num_generations, batch_timeout = self._options["num_generations"], self._options["batch_timeout"]
        models, given = self.reward_models, self._options["weights"]
        self._submitter = Submitter(self._engine, self._specs, models, num_generations, batch_timeout)
        pairs = zip(self.reward_weights, items, strict=True)
        ours = tuple(weight for weight, item in pairs if not is_reward_model(item))
        self._builder = ResultBuilder(self._specs, ours, self._options["incomplete"], self._options["max_failure_rate"])
        places = tuple(place for place, item in enumerate(items) if is_reward_model(item))
        self._reward_list = RewardList(len(items), models, places, given)
        self._trainer_batches = TrainerBatches(self, self._engine, self._submitter, self._builder, self._reward_list)
        self._sample_scorer = SampleScorer(self._engine, self._submitter, self._builder)
        # Weakly: each column holds the dispatcher, which else would end only with Python's
        # collector.
        self._columns: WeakValueDictionary[int, RewardColumn] = WeakValueDictionary()
        # Of each column, what was set on it, as a name: it stays when nobody has the column
        # meanwhile.
        self._attributes: list[dict[str, Any]] = [{} for _ in items]
        self._engine.end_with(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reward functions, in order, without reward models."""
        return tuple(spec.name for spec in self._specs)

    @property
    def options(self) -> Mapping[str, Any]:
        """What the dispatcher was given beside the functions, checked; None where it was left to
        the default.

        Of ``worker_env`` the names alone, in a tuple: the values may be secrets.
        """
        env = self._options["worker_env"]
        return MappingProxyType({**self._options, "worker_env": None if env is None else tuple(env)})

    @property
    def reward_funcs(self) -> list[Any]:
        """What a trainer takes as its ``reward_funcs``: a column per function, reward models as
        they are.

        Each column is a callable with a unique ``__name__`` that obeys TRL's batch contract. The
        first one called with a batch starts all functions on it; the others only collect.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> [column(completions=["a", "bcd"]) for column in dispatcher.reward_funcs]
            [[1.0, 3.0]]
        """
        return [self._column(index) for index in range(len(self._items))]

    @property
    def reward_weights(self) -> list[float]:
        """One weight per entry of the list, for the trainer's ``reward_weights``."""
        given: list[float] | None = self._options["weights"]
        return [1.0] * len(self._items) if given is None else list(given)

    @property
    def reward_models(self) -> tuple[str, ...]:
        """Names of the reward models in the list, which the trainer runs itself."""
        return tuple(model_name(item) for item in self._items if is_reward_model(item))

    @property
    def closed(self) -> bool:
        """Whether it was closed, and takes no batch any more."""
        return self._engine.closed

    def score(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        **columns: object,
    ) -> RewardBatch:
        """Score a batch and wait for it.

        Args:
            completions: One per sample, length ``P * G``, texts or lists of messages; the samples
                of a group are contiguous.
            prompts: One per sample, repeated for each completion, as trainers do.
            num_generations: ``G``, completions per prompt; 1 if neither this nor the dispatcher
                says it and no function needs it.
            completion_ids: One list of token ids per sample.
            group_quorum: Deliver a group once so many of its samples have all their cells, and
                cancel the stragglers: `Status.CANCELLED`, reason "quorum", no failure of their
                function. A group function counts as a cell of each sample; ``finish_group`` gets
                the scores that there are.
            group_timeout: Seconds that a group may take from its first sample. Calls that have not
                ended then are `Status.TIMEOUT`, reason "group timeout". Together with
                `group_quorum` whatever comes first ends the group.
            batch_timeout: Seconds that the batch may take; the dispatcher's if left out.
            **columns: Dataset columns, one value per sample; also ``environments`` and
                ``trainer_state``.

        Returns:
            Rewards ``[P, G, F]``, float32, NaN where there is no reward.

        Raises:
            DataError: The batch can't be scored: a column is missing, a length is wrong, groups
                aren't whole.
            RewardFailureError: A function failed on more samples than allowed.
            ClosedError: The dispatcher was closed.

        Examples:
            >>> import asyncio, guerdon
            >>> @guerdon.reward
            ... async def slow(seconds: float) -> float:
            ...     await asyncio.sleep(seconds)
            ...     return 1.0
            >>> dispatcher = guerdon.Dispatcher([slow])
            >>> batch = dispatcher.score(
            ...     completions=["a", "b"], seconds=[0.0, 60.0], num_generations=2, group_quorum=1
            ... )
            >>> [guerdon.Status(status).label for status in batch.status.ravel()]
            ['ok', 'cancelled']
        """
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout)
        started: list[Batch] = []
        try:
            batch = self._submitter.submit(started, options, completions, prompts, completion_ids, columns)
            return PendingBatch(self, batch, self._builder).result()
        except BaseException:
            _give_up(started)
            raise

    def submit(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        **columns: object,
    ) -> PendingBatch:
        """Start scoring a batch and return at once; arguments and errors as for `score`.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> pending = dispatcher.submit(completions=["a", "bcd"], num_generations=2)
            >>> pending.result().rewards.tolist()
            [[[1.0], [3.0]]]
        """
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout)
        started: list[Batch] = []
        try:
            batch = self._submitter.submit(started, options, completions, prompts, completion_ids, columns)
            return PendingBatch(self, batch, self._builder)
        except BaseException:
            _give_up(started)
            raise

    def stream(
        self,
        *,
        num_generations: int | None = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        max_pending: int | None = None,
        trainer_state: object = None,
    ) -> OpenBatch:
        """Open a batch that takes samples as they come, by `OpenBatch.add`, until
        `OpenBatch.finish`.

        Args:
            num_generations: As for `score`, like the other options.
            max_pending: `OpenBatch.add` waits (backpressure) while so many samples are in full
                groups that are not complete yet.
            trainer_state: The same for all samples, for functions that ask for it.

        Raises:
            DataError: An option can't work.
            ClosedError: The dispatcher was closed.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> stream = dispatcher.stream(num_generations=2)
            >>> stream.add(completions=["a", "bc"])
            [0, 1]
            >>> stream.finish()
            >>> stream.result().rewards.tolist()
            [[[1.0], [2.0]]]
        """
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout, max_pending)
        started: list[Batch] = []
        try:
            batch, appender = self._submitter.open(started, options, trainer_state)
            return OpenBatch(self, batch, self._builder, appender)
        except BaseException:
            _give_up(started)
            raise

    async def ascore(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        batch_timeout: float | None = None,
        **columns: object,
    ) -> RewardBatch:
        """`score` for coroutines: the running loop goes on meanwhile. Cancelling it cancels the
        batch."""
        await self._engine.astart(self)
        options = BatchOptions(num_generations, group_quorum, group_timeout, batch_timeout)
        started: list[Batch] = []
        try:
            batch = self._submitter.submit(started, options, completions, prompts, completion_ids, columns)
            return await PendingBatch(self, batch, self._builder).aresult()
        except BaseException:
            _give_up(started)
            raise

    async def ascore_one(
        self,
        /,  # a dataset may have a column called self
        *,
        completion: object,
        prompt: object = None,
        completion_ids: object = None,
        **columns: object,
    ) -> SampleResult:
        """Score one sample, from any event loop; calls that come together are scored together.

        What is called in the same turn of a loop runs in few batches, of at most 256 samples each:
        for callers that have one sample at a time, thousands of them at once. Each call returns
        when its own sample is complete. Functions of TRL's batch contract run once on each such
        batch, so they are right for this only if their rows are independent.

        Args:
            completion: A text or a list of messages.
            prompt: Its prompt.
            completion_ids: Its token ids.
            **columns: Values of the sample by column; also ``environment`` and ``trainer_state``.

        Returns: Rewards, status and reasons by function, and the total. Failures are in it:
            ``max_failure_rate`` is not judged.

        Raises:
            DataError: This sample can't be scored, or a function works on whole groups.
            RewardFailureError: A function with ``on_failure="raise"`` failed on it.
            ClosedError: The dispatcher was closed.

        Examples:
            >>> import asyncio
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> asyncio.run(dispatcher.ascore_one(completion="abc")).rewards
            {'length': 3.0}
        """
        given = {"prompt": prompt, "completion_ids": completion_ids}
        given = {name: value for name, value in given.items() if value is not None}
        return await self._sample_scorer.score(self, {"completion": completion, **given, **columns})

    def replace(self, **options: Any) -> Dispatcher:
        """A dispatcher of the same functions with some options changed; it has an engine of its
        own.

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

    def stats(self) -> dict[str, Any]:
        """Counters of the engine since its start (worker restarts, kills, abandoned threads,
        requests that failed over or were hedged, …); empty before the first use.

        With functions that are pure or have a ``cache=`` folder, ``"cache"`` holds of each, by
        name, how many samples needed no call: ``"shared"`` got the outcome of an identical call,
        ``"hits"`` were found in the folder, ``"misses"`` looked up in vain; ``"cache_bytes"`` is
        what outcomes take in the folders, ``"cache_dropped"`` counts those that the disk did not
        take (docs/cache.md).

        With judges or reward services ``"usage"`` holds what each of them used so far, by name, as
        `RewardBatch.usage` does for one batch.
        """
        engine = self._engine.started
        if engine is None:
            return {}
        stats: dict[str, Any] = dict(engine.stats())
        if any(spec.pure for spec in self._specs):
            stats["cache"] = {
                spec.name: dict(zip(("shared", "hits", "misses"), counts, strict=True))
                for spec, counts in zip(self._specs, engine.call_counts(), strict=True)
                if spec.pure
            }
        priced = self._builder.priced
        if priced:
            used = zip(self.names, engine.usage(), strict=True)
            stats["usage"] = {name: usage_of(usage, priced[name]) for name, usage in used if name in priced}
        return stats

    def dump(self, timeout: float = 1.0) -> Dump:
        """What is in flight now, with its age, its worker and its Python stack:
        ``print(dispatcher.dump())``.

        It disturbs nothing and may be called from any thread, in a signal handler too, while a
        batch is waited for.

        Args:
            timeout: Seconds that it may take. A worker that does not say in time where it stands is
                shown without stack.

        Raises:
            RegistrationError: `timeout` is no such time.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> with Dispatcher([reward(lambda text: float(len(text)), name="length")]) as dispatcher:
            ...     print(dispatcher.dump())
            0 calls in flight, 0 worker processes alive
        """
        return self._engine.dump(_options.bound("timeout", timeout))

    def endpoints(self, function: str, member: str | None = None) -> Endpoints:
        """The endpoints of a judge or reward service: their state, and `Endpoints.set` to replace
        them while it runs.

        Args:
            function: Its name; any column of a rubric stands for all of them.
            member: Of a panel: whose endpoints.

        Raises:
            ValueError: There is no such function or member, or it sends no requests.

        Examples:
            >>> from guerdon import Dispatcher, judge
            >>> helpful = judge(base_url="http://localhost:8000/v1", model="m", prompt="{completion}", name="helpful")
            >>> print(Dispatcher([helpful]).endpoints("helpful"))
            endpoints of 'helpful':
              http://localhost:8000/v1: breaker closed, 0 in flight, 0 answered, 0 failed
        """
        from guerdon.endpoints import endpoints_in  # not loaded where no function has any

        return endpoints_in(self._specs, function, member, self._engine)

    def worker_pids(self) -> list[int]:
        """Process ids of the workers alive."""
        engine = self._engine.started
        return [] if engine is None else engine.worker_pids()

    def _column(self, index: int) -> object:
        """What a trainer takes for this entry of the list."""
        if is_reward_model(self._items[index]):
            return self._items[index]
        function = sum(not is_reward_model(item) for item in self._items[:index])
        known = self._columns.get(index)
        if known is not None:
            return known
        name, kept = self._specs[function].name, self._attributes[index]
        collect = self._trainer_batches.collect
        column = column_class(name)(self, self._reward_list, collect, index, function, name, kept)
        return self._columns.setdefault(index, column)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Dispatcher], tuple[Any, ...]]:
        return _restore, (type(self), self._items, self._options, self._own_state())

    def _own_state(self) -> dict[str, Any]:
        """What a subclass added."""
        return {name: value for name, value in vars(self).items() if name not in _STATE}

    # A stock trainer that was given the dispatcher itself asks for its name, before anything is
    # trained, or calls it: both say what to do.
    @property
    def __name__(self) -> str:
        raise TypeError(_BARE)

    def __call__(self, *args: object, **columns: object) -> NoReturn:
        raise TypeError(_BARE)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "running" if self._engine.started is not None else "not started"
        functions = ", ".join(f"{spec.name} ({spec.lane})" for spec in self._specs)
        return f"<Dispatcher of {functions}; {self.workers} workers, {state}>"


def _give_up(started: list[Batch]) -> None:
    """Cancels batches whose caller was interrupted; nothing happens to those that are done."""
    for batch in started:
        batch.cancel("interrupted")


def _restore(
    kind: type[Dispatcher], items: tuple[object, ...], options: dict[str, Any], state: dict[str, Any]
) -> Dispatcher:
    """A dispatcher of the class `kind`, made without its ``__init__``, whose parameters are the
    subclass's own affair."""
    restored = kind.__new__(kind)
    Dispatcher.__init__(restored, items, **options)
    vars(restored).update(state)
    return restored
