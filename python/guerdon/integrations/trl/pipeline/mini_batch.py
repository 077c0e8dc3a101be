"""A batch that is trained on in the order in which its groups are scored.

TRL keeps the pieces of a generated batch in a list and takes one for each micro-step. This stands in the list's place.

- B-1  Every group is in the pieces exactly once, its samples in order; a piece has as many rows as TRL's.
- B-2  A piece waits for as many groups as it needs and no more; on every rank as many (G-5 of grpo.py).
- B-3  Pieces that were made stay: later iterations over the batch get the same.
- B-4  When the last piece is made, the whole batch is complete, and is logged as TRL logs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from guerdon._trainer.context import TrainerMemory
from guerdon.integrations.trl.pipeline.generated_batch import Flight, take
from guerdon.integrations.trl.trainer_context import TRLTrainerContext

if TYPE_CHECKING:
    from guerdon.integrations.trl.pipeline.scoring import Scoring


class Trainer(Protocol):
    """What the pieces ask of the trainer that trains on them."""

    args: Any
    num_generations: int

    def record_generation(self, flight: Flight) -> None: ...
    def replay(self, flight: Flight, rows: Iterable[int], *, record: bool) -> Any: ...
    def scoring_of(self, flight: Flight) -> Scoring: ...
    def settle(self, scoring: Scoring) -> None: ...


class MiniBatches:
    """The pieces of one batch, made as they are asked for."""

    def __init__(self, trainer: Trainer, flight: Flight) -> None:
        self._trainer = trainer
        self._flight = flight
        self._output = split_pixel_values_by_grid(flight.output)
        self._advantages = flight.output["advantages"].clone()
        self._count = trainer.args.steps_per_generation
        self._rows: list[int] = []  # of the groups that were taken, in their order of completion
        self._pieces: list[dict[str, Any]] = []  # B-3

    def __getitem__(self, index: int) -> dict[str, Any]:
        while len(self._pieces) <= index:
            self._pieces.append(self._next())
        return self._pieces[index]

    def _next(self) -> dict[str, Any]:
        trainer, flight = self._trainer, self._flight
        size = len(flight.prompts) // self._count
        first = len(self._pieces) * size
        if not self._pieces:
            trainer.record_generation(flight)
        new = self._take_groups(first + size)
        if new:
            self._advantages[new] = trainer.replay(flight, new, record=False)
        if len(self._pieces) == self._count - 1:
            trainer.settle(trainer.scoring_of(flight))
            trainer.replay(flight, range(len(flight.prompts)), record=True)
        rows = self._rows[first : first + size]
        piece = unsplit_pixel_values_by_grid(take({**self._output, "advantages": self._advantages}, rows))
        return dict(piece)

    def _take_groups(self, rows: int) -> list[int]:
        """Waits until there are as many rows; gives the new ones. If it fails on one rank, it fails on all."""
        trainer, known = self._trainer, len(self._rows)
        scoring = trainer.scoring_of(self._flight)
        error: Exception | None = None
        try:
            while len(self._rows) < rows:
                group = scoring.next_group()
                self._rows.extend(range(group * trainer.num_generations, (group + 1) * trainer.num_generations))
        except Exception as failed:
            error = failed
        agreed = TRLTrainerContext(TrainerMemory(), trainer).agree(error, None)
        if agreed is not None:
            raise agreed from None
        return self._rows[known:]
