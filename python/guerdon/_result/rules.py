"""What a dispatcher makes of its batches' results: the same for all of them, and so worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from guerdon._registration.spec import FunctionSpec

if TYPE_CHECKING:
    from guerdon._native import Batch
    from guerdon.results import RewardBatch


@dataclass(frozen=True)
class Rules:
    """How results are shown, and when failures are too many.

    Attributes:
        specs: The functions.
        weights: One per function.
        incomplete: What becomes of a sample on which a function failed.
        max_failure_rate: Where a function has none of its own.
    """

    specs: tuple[FunctionSpec, ...]
    weights: tuple[float, ...]
    incomplete: str
    max_failure_rate: float

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(spec.name for spec in self.specs), tuple(spec.shape for spec in self.specs)

    def settle(self, batch: Batch, *, cancelled: bool) -> tuple[RewardBatch, str | None]:
        """The result of a batch that is done, and what to tell the user if failures were too many.

        Args:
            cancelled: By its caller, who gets what there is.
        """
        from guerdon._result.failures import breach
        from guerdon.results import RewardBatch

        names, shapes = self._columns
        result = RewardBatch(batch, names, shapes, self.weights, self.incomplete)
        return result, None if cancelled else breach(result, self.specs, self.max_failure_rate)
