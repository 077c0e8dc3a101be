"""A batch that is trained on in the order in which its groups are scored.

TRL keeps the pieces of a generated batch in a list and takes one for each micro-step; `MiniBatches`
replaces the list. Each group is in the pieces exactly once, its samples in order, and every rank
waits for the same number of groups.
"""

from __future__ import annotations

from typing import Any

from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from guerdon.integrations.trl.pipeline.generated_batch import GeneratedBatch, select_rows
from guerdon.integrations.trl.pipeline.trainer_logs import log_generation
from guerdon.integrations.trl.trainer_context import raised_together


class MiniBatches:
    """The pieces of one batch of a `PipelinedTrainer`, made as they are asked for."""

    def __init__(self, trainer: Any, generated: GeneratedBatch) -> None:
        self._trainer = trainer
        self._generated = generated
        self._output = split_pixel_values_by_grid(generated.output)
        self._advantages = generated.output["advantages"].clone()
        self._count = trainer.args.steps_per_generation
        self._rows: list[int] = []  # of the groups that were taken, in their order of completion
        # Kept: later iterations over the batch get the same pieces.
        self._pieces: list[dict[str, Any]] = []

    def __getitem__(self, index: int) -> dict[str, Any]:
        while len(self._pieces) <= index:
            self._pieces.append(self._next())
        return self._pieces[index]

    def _next(self) -> dict[str, Any]:
        trainer, generated = self._trainer, self._generated
        size = len(generated.source) // self._count
        first = len(self._pieces) * size
        if not self._pieces:
            log_generation(trainer, generated)
        new = self._take_groups(first + size)
        if new:
            self._advantages[new] = trainer.replay(generated, new, record=False)
        if len(self._pieces) == self._count - 1:
            self._record()
        rows = self._rows[first : first + size]
        piece = unsplit_pixel_values_by_grid(select_rows({**self._output, "advantages": self._advantages}, rows))
        return dict(piece)

    def finish(self) -> bool:
        """Completes and logs a batch that the training ends inside of; whether it is one."""
        if not 0 < len(self._pieces) < self._count:
            return False
        self._record()
        return True

    def _record(self) -> None:
        """Waits for all rewards, and logs them as TRL logs a batch."""
        trainer, generated = self._trainer, self._generated
        trainer.complete(trainer.scoring_of(generated))
        trainer.replay(generated, range(len(generated.source)), record=True)

    def _take_groups(self, rows: int) -> list[int]:
        """Waits for `rows` rows; gives the new ones. An error on one rank is raised on all."""
        trainer, known = self._trainer, len(self._rows)
        scoring = trainer.scoring_of(self._generated)
        with raised_together(trainer):
            while len(self._rows) < rows:
                group = scoring.next_group()
                self._rows.extend(range(group * trainer.num_generations, (group + 1) * trainer.num_generations))
        return self._rows[known:]
