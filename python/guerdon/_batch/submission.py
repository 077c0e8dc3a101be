"""Submits a batch to the engine: checks it, then submits it whole or opens it for more samples.

Batches that can't be scored are refused before they exist. A new batch is in its caller's `started`
list at once, so that an exception in the caller's thread (Ctrl-C) can't lose the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon._batch.appending import Appender
from guerdon._batch.bounds import MOST_GENERATIONS, seconds, whole
from guerdon._batch.column_routing import ColumnRouter, unshippable
from guerdon._batch.columns import (
    COMPLETION_IDS,
    COMPLETIONS,
    PROMPTS,
    Data,
    collect,
    refuse_singular,
)
from guerdon._batch.trainer_state import frozen, step_of
from guerdon._functions.serialization.column_values import BatchPickler
from guerdon._functions.spec import FunctionSpec
from guerdon._system.units import integer
from guerdon.errors import DataError, RegistrationError

if TYPE_CHECKING:
    from guerdon._batch.engine_source import EngineSource
    from guerdon._batch.kept_columns import KeptColumns
    from guerdon._native import Batch


@dataclass
class BatchOptions:
    """Options of one batch, beside its data; unchecked. See `Dispatcher.score`."""

    num_generations: int | None = None
    group_quorum: int | None = None
    group_timeout: float | None = None
    batch_timeout: float | None = None
    max_pending: int | None = None
    cancellable: bool = False  # group by group, by `Batch.cancel_group`


class Submitter:
    """Takes the batches of one dispatcher.

    Args:
        engine: The dispatcher's.
        specs: Its functions.
        models: Names of the reward models in its list: only a trainer can score with those.
        num_generations: The group size where a batch doesn't say it.
        batch_timeout: That of its batches that have none of their own.
        kept: What a journal keeps of its batches.
        debugged: No time bounds a batch or a group.

    Attributes:
        group_function: Name of a function that works on whole groups, None without one.
    """

    def __init__(
        self,
        engine: EngineSource,
        specs: Sequence[FunctionSpec],
        models: Sequence[str],
        num_generations: int | None,
        batch_timeout: float | None,
        kept: KeptColumns | None = None,
        *,
        debugged: bool = False,
    ) -> None:
        self._engine = engine
        self._models = models
        self._num_generations = num_generations
        self._batch_timeout = None if debugged else batch_timeout
        self._debugged = debugged
        grouped = (spec.name for spec in specs if spec.shape == "group" or spec.finish is not None)
        self.group_function = next(grouped, None)
        self._batch_function = next((spec.name for spec in specs if spec.shape == "batch"), None)
        self._router = ColumnRouter(specs, kept)

    def submit(
        self,
        started: list[Batch],
        options: BatchOptions,
        completions: object,
        prompts: object,
        completion_ids: object,
        columns: Mapping[str, object],
    ) -> Batch:
        """A new batch, whole.

        Raises:
            DataError: It can't be scored.
        """
        self._refuse_models()
        refuse_singular(columns)
        data = collect(prompts, completions, completion_ids, columns)
        size = check_group_size(self._group_size(options.num_generations), data.samples)
        return self._submit(started, data, size, **self._bounds(options, size))

    def open(self, started: list[Batch], options: BatchOptions, trainer_state: object) -> tuple[Batch, Appender]:
        """A new batch without samples, and what adds them.

        Raises:
            DataError: An option can't work.
        """
        self._refuse_models()
        size = check_group_size(self._group_size(options.num_generations), 0)
        bounds = self._bounds(options, size)
        step = step_of(trainer_state)
        batch = self._engine.get().open(num_generations=size, held=started, step=step, **bounds)
        return batch, Appender(batch, self._router, frozen(trainer_state))

    def submit_from_trainer(
        self, started: list[Batch], arguments: Mapping[str, Any], group_size: int | None, ranks: int
    ) -> Batch:
        """A new batch of what a trainer gives its reward functions.

        Args:
            group_size: The trainer's own, None if unknown.
            ranks: How many processes bring samples to the trainer's batch.

        Raises:
            DataError: It can't be scored; also a group that isn't whole on this rank.
        """
        own = {PROMPTS, COMPLETIONS, COMPLETION_IDS}
        columns = {name: values for name, values in arguments.items() if name not in own}
        lists = (arguments.get(PROMPTS), arguments.get(COMPLETIONS), arguments.get(COMPLETION_IDS))
        data = collect(*lists, columns, singles=True)
        size = trainer_group_size(self._trainers_own(group_size), data.samples, ranks, self.group_function)
        return self._submit(started, data, size, batch_timeout=self._batch_timeout)

    def open_from_trainer(
        self, started: list[Batch], trainer_state: object, samples: int, group_size: int | None, ranks: int
    ) -> tuple[Batch, Appender]:
        """`submit_from_trainer` for a batch of `samples` samples that come one after another."""
        size = trainer_group_size(self._trainers_own(group_size), samples, ranks, self.group_function)
        step = step_of(trainer_state)
        timeout = self._batch_timeout
        batch = self._engine.get().open(num_generations=size, held=started, batch_timeout=timeout, step=step)
        return batch, Appender(batch, self._router, frozen(trainer_state))

    def example(self) -> str:
        """The beginning of the first completion that was scored, for warnings."""
        return self._router.example

    def _refuse_models(self) -> None:
        if self._models:
            raise DataError(
                f"only a trainer can run the reward model {', '.join(self._models)}. Take it out of the "
                "dispatcher's list to score here."
            )

    def _group_size(self, num_generations: int | None) -> int:
        size = self._num_generations if num_generations is None else num_generations
        if size is None and self.group_function is not None:
            raise DataError(
                f"{self.group_function!r} works on whole groups: give num_generations=, the completions per prompt."
            )
        return 1 if size is None else size

    def _trainers_own(self, group_size: int | None) -> int | None:
        """The group size of a trainer's batch, the dispatcher's where the trainer's is unknown.

        Raises:
            DataError: Both are known, and differ.
        """
        own = self._num_generations
        if own is not None and group_size is not None and own != group_size:
            raise DataError(
                f"the dispatcher has num_generations={own}, and the trainer's groups have {group_size} completions: leave "
                "num_generations out of the dispatcher, so that the trainer's own holds, in evaluation too."
            )
        return group_size if own is None else own

    def _bounds(self, options: BatchOptions, size: int) -> dict[str, Any]:
        """Returns the bounds of the batch and its groups, as the engine takes them.

        Raises:
            DataError: That can't work, with these functions or at all.
        """
        try:
            quorum = whole("group_quorum", options.group_quorum)
            group_timeout = seconds("group_timeout", options.group_timeout)
            batch_timeout = seconds("batch_timeout", options.batch_timeout)
            max_pending = whole("max_pending", options.max_pending)
        except RegistrationError as error:
            raise DataError(str(error)) from None
        if quorum is not None and quorum > size:
            raise DataError(f"group_quorum={quorum}: a group has fewer samples, num_generations={size}.")
        batch_function = self._batch_function
        instead = "declare it with reward(fn, rowwise=True) if its rows are independent, or as a group_reward"
        if batch_function is not None and group_timeout is not None:
            raise DataError(
                f"group_timeout={group_timeout:g} can't hold with {batch_function!r}, which sees the whole batch: its one "
                f"call belongs to no group alone. Use batch_timeout=, or {instead}."
            )
        if batch_function is not None and max_pending is not None:
            raise DataError(
                f"max_pending={max_pending} with {batch_function!r}, which sees the whole batch: no group completes before "
                f"finish(), and add() would wait for ever. Leave max_pending out, or {instead}."
            )
        if self._debugged:
            batch_timeout = group_timeout = None
        elif batch_timeout is None:
            batch_timeout = self._batch_timeout
        bounds: dict[str, Any] = {
            "batch_timeout": batch_timeout,
            "group_quorum": quorum,
            "group_timeout": group_timeout,
        }
        if options.cancellable:
            bounds["cancellable"] = True
        return bounds if max_pending is None else {**bounds, "max_pending": max_pending}

    def _submit(self, started: list[Batch], data: Data, num_generations: int, **bounds: Any) -> Batch:
        step = step_of(data.trainer_state)
        data.trainer_state = frozen(data.trainer_state)
        routed = self._router.route(data)
        engine = self._engine.get()
        try:
            return engine.submit(
                routed.columns,
                routed.uses,
                samples=data.samples,
                num_generations=num_generations,
                held=started,
                dumps=BatchPickler().dumps,
                step=step,
                journal=routed.journal,
                **bounds,
            )
        except TypeError as error:
            raise unshippable(error, routed) from error


def check_group_size(num_generations: object, samples: int, *, ranks: int = 1) -> int:
    """`num_generations`, if the samples of all ranks make whole groups of it.

    Raises:
        DataError: It isn't a whole number of at least 1, or doesn't divide the number of samples.
    """
    size = integer(num_generations)
    if size is None or size < 1:
        raise DataError(f"num_generations={num_generations!r}: expected a whole number of at least 1.")
    if size > MOST_GENERATIONS:
        raise DataError(f"num_generations={size}: expected at most {MOST_GENERATIONS}.")
    if samples * ranks % size:
        where = f"{samples} samples" if ranks == 1 else f"{samples} samples on each of {ranks} ranks"
        raise DataError(
            f"{where} don't make whole groups of num_generations={size}. Give num_generations "
            "completions per prompt, one prompt's behind the other."
        )
    return size


def trainer_group_size(size: int | None, samples: int, ranks: int, group_function: str | None) -> int:
    """The group size of a batch that a trainer gives: 1 where no function needs whole groups and
    none are there.

    Args:
        size: Completions per prompt, None if unknown.
        samples: Samples of this rank.
        group_function: One that works on whole groups; None without one.

    Raises:
        DataError: That function can't have them.
    """
    if size is not None:
        size = check_group_size(size, samples, ranks=ranks)
    if group_function is not None:
        if size is None:
            raise DataError(
                f"{group_function!r} works on whole groups, and no trainer says how many completions a prompt has: give it, "
                "Dispatcher(..., num_generations=8)."
            )
        if samples % size:
            raise DataError(
                f"{group_function!r} works on whole groups, but the {samples} samples of this rank hold part of one "
                f"(num_generations={size}). Make the samples of a rank, per_device_train_batch_size * "
                "steps_per_generation (in evaluation per_device_eval_batch_size), a multiple of it."
            )
    return 1 if size is None or samples % size else size
