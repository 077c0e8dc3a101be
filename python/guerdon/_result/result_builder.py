"""Makes the result of a batch that is complete, as its dispatcher's options say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from guerdon._registration.spec import FunctionSpec

if TYPE_CHECKING:
    from guerdon._native import Batch
    from guerdon.results import RewardBatch


@dataclass(frozen=True)
class ResultBuilder:
    """The same for all batches of one dispatcher.

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

    def build(self, batch: Batch, *, cancelled: bool) -> tuple[RewardBatch, str | None]:
        """The result of a complete batch, and the error message if failures were too many.

        Args:
            cancelled: By its caller, who gets what there is.
        """
        from guerdon._result.failures import breach
        from guerdon.results import RewardBatch

        names, shapes = self._columns
        result = RewardBatch(batch, names, shapes, self.weights, self.incomplete)
        return result, None if cancelled else breach(result, self.specs, self.max_failure_rate)
