"""One reward function under audit: `Subject`.

- Every score comes from a `Dispatcher`: a function that hangs, crashes or raises gives an outcome
  with a reason, never an exception here. Python functions run in worker processes, whatever their
  lane, so that a crash ends a worker and not the audit.
- Scores can be asked for in another order, other batches, other processes and other worker counts.
- After `MOST_HANGS` timeouts and crashes nothing more is run: the rest is cancelled.
- Beyond its deadline a call ends with `OutOfTime`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from guerdon._functions.build import spec_of
from guerdon._functions.options import Options
from guerdon._functions.spec import FunctionSpec
from guerdon._system import worker_environment
from guerdon._system.units import LONGEST
from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonError, SerializationError
from guerdon.functions import RewardFunction
from guerdon.profile.samples import Case, Row, Score, checked_rows, text_of
from guerdon.results.status import Status

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "MOST_HANGS",
    "Case",
    "ListedSpec",
    "OutOfTime",
    "Row",
    "Score",
    "Subject",
    "Variant",
]

Variant = Literal["call", "rowwise"]
Made = TypeVar("Made")

TIMEOUT_S: Final = 10.0
"""Timeout of a sync function's call, if its own isn't shorter."""

MOST_HANGS: Final = 6
HANGING: Final = (Status.TIMEOUT, Status.CRASHED)
CHUNKS: Final = (16, 64, 256, 1024)
"""Samples that are submitted together, at first few: a function that hangs is noticed early."""

SEED: Final = 1
_NOT_COLUMNS: Final = {
    *("prompt", "completion", "prompts", "completions", "completion_ids", "num_generations", "trainer_state"),
    *("group_quorum", "group_timeout", "batch_timeout"),
}


class OutOfTime(GuerdonError):
    """The time of a profile is spent; `scores` are those of the first samples."""

    def __init__(self, scores: Sequence[Score] = ()) -> None:
        super().__init__("the time of the profile is spent")
        self.scores = scores


class ListedSpec:
    """A decorated function that `Dispatcher` takes, which is nothing but a spec."""

    __guerdon_decorated__ = True

    def __init__(self, spec: FunctionSpec) -> None:
        self.spec = spec
        self.__name__ = spec.name


class Subject:
    """A reward function with the rows on which it is audited.

    Args:
        function: What stands in a dispatcher's list: decorated, plain (TRL's contract), a judge.
        rows: Mappings with ``prompt`` and the columns that the function asks for, in the order of
            the data; with ``completion`` too where there are completions. All have the same form:
            strings or lists of messages. Rows without one are left out where completions are run.
        timeout: Seconds of one call. Default: the function's own; for sync functions at most 10.
        workers: Worker processes. Default 2.
        memory_limit: Bytes that a call may hold in a worker; the function's own goes first.
        max_output: Bytes that a call may print, likewise.
        deadline: When scoring ends, by `time.monotonic`.
        reference: Template of a completion that must score, with columns in braces
            (`guerdon.profile.forms`). Default: the usual forms of the column of answers.
        answer: Name of that column. Default: found by its name.
        probes: In place of the package's, see `guerdon.profile.probes.load_probes`.

    Raises:
        RegistrationError: It is not a reward function.
        DataError: There are no rows, or they are not mappings.

    Examples:
        >>> from guerdon import reward
        >>> exact = reward(lambda completion, answer: float(completion == answer), name="exact")
        >>> with Subject(exact, [{"prompt": "1+1=", "answer": "2"}]) as subject:
        ...     [score.value for score in subject.score([Case(0, "2"), Case(0, "3")])]
        [1.0, 0.0]
    """

    def __init__(
        self,
        function: object,
        rows: Sequence[Row],
        *,
        timeout: float | None = None,
        workers: int = 2,
        memory_limit: int | None = None,
        max_output: int | None = None,
        deadline: float = float("inf"),
        reference: str | None = None,
        answer: str | None = None,
        probes: tuple[Any, ...] | None = None,
    ) -> None:
        self.function = function
        self.rows: tuple[Row, ...] = checked_rows(rows)
        self.workers = workers
        self.memory_limit = memory_limit
        self.max_output = max_output
        self.deadline = deadline
        self.reference = reference
        self.answer = answer
        self.probes = probes
        self.spec: FunctionSpec = spec_of(function)
        own = self.spec.policy.timeout
        kept = self.spec.is_async or self.spec.is_engine_made
        default = own if kept and own < LONGEST else min(own, TIMEOUT_S)
        self.timeout = default if timeout is None else timeout
        self.hangs = 0
        self.hanging: list[tuple[Case, Score]] = []
        """The first samples on which it hung or crashed, whoever asked for their scores."""
        self.failing: Sequence[tuple[Case, Score]] = ()
        """Samples on which it failed when it was measured."""
        self.own_lane = self.spec.is_engine_made or "environment" in self.spec.wants.required
        """Whether it runs on its own lane, as it can't be moved to worker processes."""
        self._dispatchers: dict[tuple[Variant, int, int], Dispatcher] = {}
        self._made: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The function's name."""
        return self.spec.name

    def once(self, make: Callable[[Subject], Made]) -> Made:
        """Returns what `make` returns for this subject; it is called the first time only."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    @property
    def batch(self) -> bool:
        """Returns whether one call scores a whole batch (TRL's contract)."""
        return self.spec.shape == "batch"

    @property
    def grouped(self) -> bool:
        """Returns whether a score depends on the other samples of its group, by contract."""
        return self.spec.shape == "group" or self.spec.finish is not None

    @cached_property
    def _groups(self) -> list[list[int]]:
        """Returns runs of rows with equal prompts; if some rows have completions, only runs of
        their prompts."""
        runs = groupby(range(len(self.rows)), key=lambda row: str(self.rows[row].get("prompt")))
        groups = [list(run) for _, run in runs]
        return [group for group in groups if any(map(self._is_recorded, group))] or groups

    def _is_recorded(self, row: int) -> bool:
        return self.rows[row].get("completion") is not None

    @cached_property
    def num_generations(self) -> int:
        """Completions per prompt in the rows: the length of the runs of equal prompts, if all are
        as long, else 1."""
        sizes = set(map(len, self._groups))
        return sizes.pop() if len(sizes) == 1 else 1

    @property
    def group_size(self) -> int:
        """Samples that must stay together when the rows' own completions are scored."""
        return self.num_generations if self.grouped and self.samples() else 1

    @cached_property
    def conversational(self) -> bool:
        """Returns whether completions are lists of messages."""
        first = next((row["completion"] for row in self.rows if row.get("completion") is not None), None)
        return isinstance(self.rows[0].get("prompt") if first is None else first, (list, tuple))

    def completion(self, text: str) -> Any:
        """`text` in the form that the rows have."""
        return [{"role": "assistant", "content": text}] if self.conversational else text

    def samples(self) -> list[Case]:
        """The rows' own completions, where a score depends on its group those of whole groups; none
        where the data has none."""
        groups = self._groups
        if self.grouped and self.num_generations > 1:
            groups = [group for group in groups if all(map(self._is_recorded, group))]
        return [Case(row, self.rows[row]["completion"]) for group in groups for row in group if self._is_recorded(row)]

    def score(
        self,
        samples: Sequence[Case],
        *,
        batch: int | None = None,
        variant: Variant = "call",
        seed: int = SEED,
        workers: int | None = None,
        fresh: bool = False,
        group: int | None = None,
    ) -> list[Score]:
        """Score samples, in this order.

        Args:
            batch: Samples of one submitted batch. Default: all.
            variant: ``"rowwise"`` calls a function of TRL's contract with one row at a time.
            seed: Hash seed of the worker processes.
            workers: Worker processes; 1 scores in order.
            fresh: In processes that have run nothing before, and that nothing uses afterwards.
            group: Samples of one group, which stand together (functions of groups; the last group
                is filled up). Default: 1.

        Returns: One score a sample.

        Raises:
            DataError: The rows lack a column that the function asks for.
        """
        found: list[Score] = []
        group = group or 1
        with self._dispatcher(variant, seed, workers or self.workers, fresh=fresh) as dispatcher:
            for chunk in _chunks(samples, len(samples) if self.batch and variant == "call" else batch, batch, group):
                if self.hangs >= MOST_HANGS:
                    found += [Score(None, Status.CANCELLED, f"not run, after {self.hangs} hangs and crashes")] * len(
                        chunk
                    )
                    continue
                try:
                    scores = self.scored(dispatcher, chunk, group)
                    failed = all(score.status.failed for score in scores)
                    by_rows = self.batch and variant == "call" and failed and len(chunk) > 1
                    if by_rows:
                        # whose fault it is
                        scores = self.score(chunk, variant="rowwise", seed=seed)
                except OutOfTime as error:
                    raise OutOfTime([*found, *error.scores]) from None
                if not by_rows:
                    # A call of many samples hangs once, not once for each.
                    shared = self.batch and variant == "call"
                    hanging = [each for each in zip(chunk, scores, strict=True) if each[1].status in HANGING]
                    self.hanging += hanging[: MOST_HANGS - len(self.hanging)]
                    self.hangs += min(len(hanging), 1) if shared else len(hanging)
                found += scores
        return found

    def close(self) -> None:
        """End its worker processes."""
        for dispatcher in self._dispatchers.values():
            dispatcher.close()
        self._dispatchers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def dispatcher_item(self, variant: Variant = "call") -> object:
        """The function as it is audited: in a worker process, without retries, gates and caches."""
        if self.spec.is_engine_made:
            policy = replace(self.spec.policy, on_failure="nan", max_failure_rate=1.0)
            return ListedSpec(replace(self.spec, run_if=None, cache=None, pure=False, policy=policy))
        given = self.function.options if isinstance(self.function, RewardFunction) else Options()
        options = replace(
            given,
            lane=self.spec.lane if self.own_lane else "process",
            loop=None,
            timeout=self.timeout,
            total_timeout=None,
            retries=0,
            limit=None,
            on_failure="nan",
            max_failure_rate=1.0,
            run_if=None,
            otherwise=None,
            pure=None,
            cache=None,
            rowwise=given.rowwise or (self.batch and variant == "rowwise"),
        )
        if options.lane == "process":
            memory, output = given.memory_limit or self.memory_limit, given.max_output or self.max_output
            # On other lanes it sees the whole environment.
            env = given.env if self.spec.lane == "process" else tuple(worker_environment.hidden({}))
            options = replace(options, memory_limit=memory, max_output=output, env=env)
        if self.batch and variant == "rowwise":
            return RewardFunction(self.spec.target, options, "sample")
        if self.batch:
            options = replace(options, timeout=4 * self.timeout)
        return RewardFunction(self.spec.target, options, self.spec.shape)

    @contextmanager
    def _dispatcher(self, variant: Variant, seed: int, workers: int, *, fresh: bool) -> Iterator[Dispatcher]:
        if fresh:
            with self._new(variant, seed, workers) as dispatcher:
                yield dispatcher
            return
        key = (variant, seed, workers)
        if key not in self._dispatchers:
            self._dispatchers[key] = self._new(variant, seed, workers)
        yield self._dispatchers[key]

    def _new(self, variant: Variant, seed: int, workers: int) -> Dispatcher:
        environment = {"PYTHONHASHSEED": str(seed)}
        options: dict[str, Any] = {"workers": workers, "max_failure_rate": 1.0, "worker_env": environment}
        try:
            return Dispatcher([self.dispatcher_item(variant)], **options)
        except SerializationError:
            if self.spec.lane == "process":
                raise
            self.own_lane = True
            return Dispatcher([self.dispatcher_item(variant)], **options)

    def scored(self, dispatcher: Dispatcher, samples: Sequence[Case], group: int) -> list[Score]:
        """Score samples by a dispatcher whose one function is this one.

        Args:
            group: Samples of one group; the last group is filled up.

        Raises:
            OutOfTime: Some of them were not scored.
        """
        wanted = len(samples)
        samples = [*samples, *[samples[-1]] * (-wanted % group)]
        result = dispatcher.score(num_generations=group, **self.columns_of(samples))
        reasons = {failure.sample: failure.reason for failure in result.failures()}
        values, states = result.rewards[..., 0].ravel().tolist(), result.status[..., 0].ravel().tolist()
        seconds = result.run_s[..., 0].ravel().tolist()
        late = {place for place, reason in reasons.items() if reason.startswith("batch timeout")}
        scores = [
            Score(
                values[place] if states[place] == Status.OK else None,
                Status.CANCELLED if place in late else Status(states[place]),
                reasons.get(place, ""),
                seconds[place],
            )
            for place in range(wanted)
        ]
        if late:
            raise OutOfTime(scores)
        return scores

    def columns_of(self, samples: Sequence[Case]) -> dict[str, Any]:
        """The arguments of `Dispatcher.score`."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime
        rows = [{**self.rows[sample.row], **sample.columns} for sample in samples]
        names = dict.fromkeys(name for row in rows for name in row if name not in _NOT_COLUMNS)
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
        columns["prompts"] = [row.get("prompt", "") for row in rows]
        columns["completions"] = [sample.completion for sample in samples]
        if left < float("inf"):
            columns["batch_timeout"] = min(left, 1e6)
        if "completion_ids" in self.spec.wants.named:  # of made texts: one token for four letters
            columns["completion_ids"] = [list(range((len(text_of(s.completion)) + 3) // 4)) for s in samples]
        return columns


def _chunks(samples: Sequence[Case], most: int | None, batch: int | None, group: int) -> Iterator[Sequence[Case]]:
    """Pieces of whole groups: of `batch` samples, or of `most`, or growing ones."""
    sizes = iter((batch or most,) if batch or most else CHUNKS)
    size = start = 0
    while start < len(samples):
        size = next(sizes, None) or size
        whole = max(group, size - size % group)
        yield samples[start : start + whole]
        start += whole
