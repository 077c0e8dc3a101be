"""The dispatcher: a list of reward functions, and the engine that runs them.

- D-1  What can't work is refused when the dispatcher is made; what a batch lacks is refused before any call.
- D-2  Nothing starts before the first use; everything ends with `close`, with the dispatcher itself, or at exit.
- D-3  It pickles and is copied as its configuration, a subclass as what it is with what it added: the copy starts an
       engine of its own.
- D-4  It is a sequence of what a trainer takes as reward functions: a column for each function, reward models as they
       are.
- D-5  An exception in the caller's thread (Ctrl-C) leaves no batch under way that nobody has a ticket for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload
from weakref import WeakValueDictionary

from guerdon import _options
from guerdon._cpu_count import default_workers
from guerdon._engine import Lifetime
from guerdon._registration.function_list import agreed_limits, listed, model_name, repeated_names
from guerdon._registration.spec import FunctionSpec, is_reward_model, spec_of
from guerdon._result.rules import Rules
from guerdon._serialization.serialized_functions import check_serializable
from guerdon._submit.arguments import Given
from guerdon._submit.submission import Admission
from guerdon._trainer.column import ColumnBatches, RewardColumn
from guerdon._trainer.context import TrainerContext, TrainerFunctions
from guerdon.errors import RegistrationError
from guerdon.pending import PendingBatch

if TYPE_CHECKING:
    from typing_extensions import Self

    from guerdon._native import Batch
    from guerdon._submit.appending import Intake
    from guerdon._submit.delivery import Delivery
    from guerdon.dump import Dump
    from guerdon.recycling import Recycle
    from guerdon.results import RewardBatch

# What `Dispatcher.__init__` makes; a subclass's own attributes are all others.
_STATE = frozenset(
    (
        "_admission",
        "_attributes",
        "_columns",
        "_items",
        "_lifetime",
        "_options",
        "_rules",
        "_specs",
        "batches",
        "workers",
    )
)

_BARE = "this is a Dispatcher, not one reward function: pass list(dispatcher) as reward_funcs"


class Dispatcher(Sequence[Any]):
    """Runs reward functions concurrently, in order, with deadlines that hold.

    Args:
        functions: Reward functions: decorated ones, `StatefulReward` instances, undecorated functions of TRL's batch contract,
            and reward models (an ``nn.Module`` or a model name), which are left to the trainer.
        weights: One per entry of `functions`, for `RewardBatch.total` and for the trainer's ``reward_weights``; all 1
            by default.
        workers: Processes of the process lane; by default the cores that this process may use, divided by the ranks on
            this host.
        num_generations: Completions per prompt, where neither the call nor the trainer says it.
        max_failure_rate: More failures than this in a function, in a batch of at least 8 samples, raise
            `RewardFailureError`. 0 to 1; a function's own value goes first.
        batch_timeout: Seconds that a whole batch may take; what isn't finished then is `timeout`.
        incomplete: ``"drop"``: a sample on which a function failed has no reward at all. ``"sum"``: it has the sum of
            what is left.
        recycle: When workers of the process lane are replaced that could go on; never by default.
        worker_env: Variables of the environment for all workers, and with None those to keep from them. By default workers
            have the trainer's environment without what looks like secrets (API keys, tokens, passwords: docs/isolation.md), and
            ``OMP_NUM_THREADS`` and ``OPENBLAS_NUM_THREADS`` are 1 unless the trainer's environment sets them.

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
    ) -> None:
        items = listed(functions, Dispatcher, RewardColumn)
        self._options: dict[str, Any] = {
            "weights": _options.weights(weights, len(items)),
            "workers": _options.whole("workers", workers, _options.MOST_WORKERS),
            "num_generations": _options.whole("num_generations", num_generations, _options.MOST_GENERATIONS),
            "max_failure_rate": _options.fraction("max_failure_rate", max_failure_rate),
            "batch_timeout": _options.seconds("batch_timeout", batch_timeout),
            "incomplete": _options.incomplete(incomplete),
            "recycle": _options.recycle(recycle),
            "worker_env": _options.worker_env(worker_env),
        }
        self._items = items
        self._specs = tuple(agreed_limits(spec_of(item) for item in items if not is_reward_model(item)))
        if not self._specs:
            raise RegistrationError(
                "only reward models are in this list, and those a trainer runs itself: give the list to the trainer as it is."
            )
        repeated_names(self._specs)
        for spec in self._specs:
            if spec.lane == "process":
                check_serializable(spec)
            if spec.http is not None:
                spec.http.secret.read(spec.name)
        workers_now = self._options["workers"] or default_workers()
        self.workers: int = workers_now
        self._lifetime = Lifetime(self._specs, workers_now, self._options["recycle"], self._options["worker_env"] or {})
        num_generations, batch_timeout = self._options["num_generations"], self._options["batch_timeout"]
        self._admission = Admission(self._lifetime, self._specs, self.reward_models, num_generations, batch_timeout)
        ours = tuple(weight for weight, item in zip(self.weights, items, strict=True) if not is_reward_model(item))
        incomplete, most = self._options["incomplete"], self._options["max_failure_rate"]
        self._rules = Rules(self._specs, ours, incomplete, most)
        self.batches = ColumnBatches(self, len(self._specs))
        # Held by who has them: each holds the dispatcher, which else would end only when Python's collector comes round (D-2).
        self._columns: WeakValueDictionary[int, RewardColumn] = WeakValueDictionary()
        # Of each, what was set on it, as a name: it stays when nobody has the column meanwhile.
        self._attributes: list[dict[str, Any]] = [{} for _ in items]
        self._lifetime.end_with(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reward functions, in order, without reward models."""
        return tuple(spec.name for spec in self._specs)

    @property
    def specs(self) -> tuple[FunctionSpec, ...]:
        """What was settled of each reward function, in order, without reward models. For integrations."""
        return self._specs

    @property
    def options(self) -> Mapping[str, Any]:
        """What the dispatcher was given beside the functions, checked; None where it was left to the default.

        Of ``worker_env`` the names alone, in a tuple: the values may be secrets.
        """
        env = self._options["worker_env"]
        return MappingProxyType({**self._options, "worker_env": None if env is None else tuple(env)})

    @property
    def group_function(self) -> str | None:
        """Name of a function that works on whole groups, so that the group size must be known; None without one."""
        return self._admission.grouped

    @property
    def weights(self) -> list[float]:
        """One weight per entry of the list, for the trainer's ``reward_weights``."""
        given: list[float] | None = self._options["weights"]
        return [1.0] * len(self._items) if given is None else list(given)

    @property
    def given_weights(self) -> list[float] | None:
        """The weights, None if the dispatcher was given none."""
        return None if self._options["weights"] is None else self.weights

    @property
    def reward_models(self) -> tuple[str, ...]:
        """What the trainer runs itself: names of the reward models in the list."""
        return tuple(model_name(item) for item in self._items if is_reward_model(item))

    @property
    def trainer_functions(self) -> TrainerFunctions:
        """The list, as the caller of its columns sees it. For integrations."""
        listed = tuple(self)
        columns = tuple(one for one in listed if isinstance(one, RewardColumn))
        return TrainerFunctions(listed, columns, self.reward_models, self.given_weights)

    @property
    def closed(self) -> bool:
        """Whether it was closed, and takes no batch any more."""
        return self._lifetime.closed

    def score(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        groups: Delivery = "all",
        batch_timeout: float | None = None,
        **columns: object,
    ) -> RewardBatch:
        """Score a batch and wait for it.

        Args:
            completions: One per sample, length ``P * G``, texts or lists of messages; the samples of a group are
                contiguous.
            prompts: One per sample, repeated for each completion, as trainers do.
            num_generations: ``G``, completions per prompt; 1 if neither this nor the dispatcher says it and no function
                needs it.
            completion_ids: One list of token ids per sample.
            groups: When a group is delivered: ``"all"`` with its last cell, `guerdon.quorum` with the first of its
                samples, `guerdon.deadline` after so many seconds.
            batch_timeout: Seconds that the batch may take; the dispatcher's budget if left out.
            **columns: Dataset columns, one value per sample; also ``environments`` and ``trainer_state``.

        Returns:
            Rewards ``[P, G, F]``, float32, NaN where there is no reward.

        Raises:
            DataError: The batch can't be scored: a column is missing, a length is wrong, groups aren't whole.
            RewardFailureError: A function failed on more samples than allowed.
            ClosedError: The dispatcher was closed.
        """
        held: list[Batch] = []
        try:
            given = Given(completions, prompts, num_generations, completion_ids, columns, groups, batch_timeout)
            return self._ticket(self._admission.whole(held, given)).result()
        except BaseException:
            _give_up(held)
            raise

    def submit(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object = None,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        groups: Delivery = "all",
        batch_timeout: float | None = None,
        more: bool = False,
        max_pending: int | None = None,
        **columns: object,
    ) -> PendingBatch:
        """Start scoring a batch and return at once; other arguments and errors as for `score`.

        Args:
            more: The batch stays open: samples are added with `PendingBatch.add` as they come, until `PendingBatch.finish`.
                `completions` may then be left out, to begin with an empty batch.
            max_pending: With ``more=True``: `PendingBatch.add` waits while so many samples stand in full groups that are not
                complete yet.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> dispatcher = Dispatcher([reward(lambda text: float(len(text)), name="length")])
            >>> ticket = dispatcher.submit(more=True, num_generations=2)
            >>> ticket.add(completions=["a", "bc"]), ticket.add(completions=["def", "ghij"])
            ([0, 1], [2, 3])
            >>> ticket.finish()
            >>> ticket.result().rewards.tolist()
            [[[1.0], [2.0]], [[3.0], [4.0]]]
        """
        held: list[Batch] = []
        try:
            given = Given(
                completions, prompts, num_generations, completion_ids, columns, groups, batch_timeout, max_pending
            )
            if more:
                return self._ticket(*self._admission.open(held, given))
            return self._ticket(self._admission.whole(held, given))
        except BaseException:
            _give_up(held)
            raise

    async def ascore(
        self,
        /,  # a dataset may have a column called self
        *,
        completions: object,
        prompts: object = None,
        num_generations: int | None = None,
        completion_ids: object = None,
        groups: Delivery = "all",
        batch_timeout: float | None = None,
        **columns: object,
    ) -> RewardBatch:
        """`score` for coroutines: the running loop goes on meanwhile. Cancelling it cancels the batch."""
        if self._lifetime.started is None:
            import asyncio

            # What runs there holds the dispatcher: else the collector could end it there, within the lock of that start.
            await asyncio.get_running_loop().run_in_executor(None, lambda: self._lifetime.engine())
        held: list[Batch] = []
        try:
            given = Given(completions, prompts, num_generations, completion_ids, columns, groups, batch_timeout)
            return await self._ticket(self._admission.whole(held, given)).aresult()
        except BaseException:
            _give_up(held)
            raise

    def submit_columns(self, given: Mapping[str, Any], context: TrainerContext, held: list[Batch]) -> PendingBatch:
        """Start scoring a batch for the columns that a trainer calls; the batch is in `held` as soon as it exists.

        Raises:
            DataError: As `score`; also a group that isn't whole on this rank.
        """
        return self._ticket(self._admission.columns(held, given, context))

    def open_columns(
        self, given: Mapping[str, Any], samples: int, context: TrainerContext, held: list[Batch]
    ) -> PendingBatch:
        """`submit_columns` for a batch whose samples come one after another, by `PendingBatch.intake`.

        Args:
            given: What is the same for all samples, ``trainer_state`` among it.
            samples: How many there will be.
        """
        return self._ticket(*self._admission.open_columns(held, given, samples, context))

    def replace(self, **options: Any) -> Dispatcher:
        """A dispatcher of the same functions with some options changed; it has an engine of its own.

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
        self._lifetime.close()

    def stats(self) -> dict[str, int]:
        """Counters of the engine since its start (worker restarts, kills, abandoned threads, …); empty before the first
        use."""
        engine = self._lifetime.started
        return {} if engine is None else engine.stats()

    def dump(self, timeout: float = 1.0) -> Dump:
        """What is in flight now, with its age, its worker and its Python stack: ``print(dispatcher.dump())``.

        It disturbs nothing and may be called from any thread, in a signal handler too, while a batch is waited for.

        Args:
            timeout: Seconds that it may take. A worker that does not say in time where it stands is shown without stack.

        Raises:
            RegistrationError: `timeout` is no such time.

        Examples:
            >>> from guerdon import Dispatcher, reward
            >>> with Dispatcher([reward(lambda text: float(len(text)), name="length")]) as dispatcher:
            ...     print(dispatcher.dump())
            0 calls in flight, 0 worker processes alive
        """
        return self._lifetime.dump(_options.bound("timeout", timeout))

    def worker_pids(self) -> list[int]:
        """Process ids of the workers alive."""
        engine = self._lifetime.started
        return [] if engine is None else engine.worker_pids()

    def _ticket(self, batch: Batch, intake: Intake | None = None) -> PendingBatch:
        return PendingBatch(self, batch, self._rules, intake)

    def _column(self, index: int) -> object:
        """What a trainer takes for this entry of the list (D-4)."""
        if is_reward_model(self._items[index]):
            return self._items[index]
        function = sum(not is_reward_model(item) for item in self._items[:index])
        known = self._columns.get(index)
        if known is not None:
            return known
        column = RewardColumn(self, index, function, self._specs[function].name, self._attributes[index])
        return self._columns.setdefault(index, column)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        places = range(len(self))[index]
        return tuple(map(self._column, places)) if isinstance(places, range) else self._column(places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Dispatcher], tuple[Any, ...]]:
        return _restore, (type(self), self._items, self._options, self._own_state())

    def _own_state(self) -> dict[str, Any]:
        """What a subclass added."""
        return {name: value for name, value in vars(self).items() if name not in _STATE}

    # A stock trainer that was given the dispatcher itself asks for its name, or calls it: both must say what to do, the
    # first before anything is trained.
    @property
    def __name__(self) -> str:
        raise TypeError(_BARE)

    def __call__(self, *args: object, **columns: object) -> NoReturn:
        raise TypeError(_BARE)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "running" if self._lifetime.started is not None else "not started"
        functions = ", ".join(f"{spec.name} ({spec.lane})" for spec in self._specs)
        return f"<Dispatcher of {functions}; {self.workers} workers, {state}>"


def _give_up(held: list[Batch]) -> None:
    """Cancels batches whose caller was interrupted; nothing happens to those that are done."""
    for batch in held:
        batch.cancel("interrupted")


def _restore(
    kind: type[Dispatcher], items: tuple[object, ...], options: dict[str, Any], state: dict[str, Any]
) -> Dispatcher:
    """A dispatcher of the class `kind`, made without its ``__init__``, whose parameters are the subclass's own affair."""
    restored = kind.__new__(kind)
    Dispatcher.__init__(restored, items, **options)
    vars(restored).update(state)
    return restored
