"""How batches get into the engine: what they bring is checked, then they are submitted whole or opened for more.

- N-1  What can't be scored is refused before there is a batch.
- N-2  A batch is in its caller's `held` from the moment it exists, so that an exception in the caller's thread leaves
       none behind that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon._registration.spec import FunctionSpec
from guerdon._serialization.column_values import dumps
from guerdon._submit.appending import Intake
from guerdon._submit.arguments import Given
from guerdon._submit.column_routing import Uses, check_group_size, columns_group_size, unshippable
from guerdon._submit.columns import (
    COMPLETION_IDS,
    COMPLETIONS,
    PROMPTS,
    TRAINER_STATE,
    Data,
    collect,
    refuse_singular,
)
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon._engine import Lifetime
    from guerdon._native import Batch
    from guerdon._trainer.context import TrainerContext


class Admission:
    """Takes the batches of one dispatcher.

    Args:
        lifetime: Its engine.
        specs: Its functions.
        models: Names of the reward models in its list, which no batch can be scored with here.
        num_generations: The group size where a batch doesn't say it.
        batch_timeout: That of its batches that have none of their own.
    """

    def __init__(
        self,
        lifetime: Lifetime,
        specs: Sequence[FunctionSpec],
        models: Sequence[str],
        num_generations: int | None,
        batch_timeout: float | None,
    ) -> None:
        self._lifetime = lifetime
        self._specs = specs
        self._models = models
        self._num_generations = num_generations
        self._budget = batch_timeout
        grouped = (spec.name for spec in specs if spec.shape == "group" or spec.finish is not None)
        self.grouped = next(grouped, None)
        self._uses = Uses(specs)

    def whole(self, held: list[Batch], given: Given) -> Batch:
        """A new batch (N-2).

        Raises:
            DataError: It can't be scored (N-1).
        """
        self._refuse_models()
        refuse_singular(given.columns)
        if given.max_pending is not None:
            raise DataError("max_pending= is for batches that samples are added to: submit(..., more=True).")
        data = collect(given.prompts, given.completions, given.completion_ids, given.columns)
        size = check_group_size(self._group_size(given.num_generations), data.samples)
        return self._submit(held, data, size, **given.terms(size, self._specs, self._budget))

    def open(self, held: list[Batch], given: Given) -> tuple[Batch, Intake]:
        """A new batch that takes more samples, by its intake (N-2).

        Raises:
            DataError: What it begins with can't be scored.
        """
        self._refuse_models()
        size = check_group_size(self._group_size(given.num_generations), 0)
        terms = given.terms(size, self._specs, self._budget)
        columns = dict(given.columns)
        batch = self._lifetime.engine().open(num_generations=size, held=held, **terms)
        intake = Intake(batch, self._uses, columns.pop(TRAINER_STATE, None))
        if given.completions is not None:
            intake.add(given.completions, given.prompts, given.completion_ids, columns)
        elif given.prompts is not None or given.completion_ids is not None or columns:
            raise DataError("there are columns without completions: give completions=[...], or all of it to add().")
        return batch, intake

    def columns(self, held: list[Batch], given: Mapping[str, Any], context: TrainerContext) -> Batch:
        """A new batch of what a trainer gives to the columns that it calls (N-2).

        Raises:
            DataError: It can't be scored; also a group that isn't whole on this rank.
        """
        own = {PROMPTS, COMPLETIONS, COMPLETION_IDS}
        columns = {name: values for name, values in given.items() if name not in own}
        data = collect(given.get(PROMPTS), given.get(COMPLETIONS), given.get(COMPLETION_IDS), columns, singles=True)
        size = self._num_generations or context.group_size()
        size = columns_group_size(size, data.samples, context.ranks, self.grouped)
        return self._submit(held, data, size, batch_timeout=self._budget)

    def open_columns(
        self, held: list[Batch], given: Mapping[str, Any], samples: int, context: TrainerContext
    ) -> tuple[Batch, Intake]:
        """`columns` for a batch whose samples come one after another; `given` is the same for all of them."""
        size = self._num_generations or context.group_size()
        size = columns_group_size(size, samples, context.ranks, self.grouped)
        batch = self._lifetime.engine().open(num_generations=size, held=held, batch_timeout=self._budget)
        return batch, Intake(batch, self._uses, given.get(TRAINER_STATE))

    def _refuse_models(self) -> None:
        if self._models:
            raise DataError(
                f"only a trainer can run the reward model {', '.join(self._models)}. Take it out of the "
                "dispatcher's list to score here."
            )

    def _group_size(self, num_generations: int | None) -> int:
        size = self._num_generations if num_generations is None else num_generations
        if size is None and self.grouped is not None:
            raise DataError(
                f"{self.grouped!r} works on whole groups: give num_generations=, the completions per prompt."
            )
        return 1 if size is None else size

    def _submit(self, held: list[Batch], data: Data, num_generations: int, **terms: Any) -> Batch:
        plan = self._uses.of(data)
        engine = self._lifetime.engine()
        try:
            return engine.submit(
                plan.columns,
                plan.uses,
                samples=data.samples,
                num_generations=num_generations,
                held=held,
                dumps=dumps,
                **terms,
            )
        except TypeError as error:
            raise unshippable(error, plan) from error
