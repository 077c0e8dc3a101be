"""Makes the result of a batch that is complete, as its dispatcher's options say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from guerdon._registration.spec import FunctionSpec

if TYPE_CHECKING:
    from guerdon._native import Batch
    from guerdon.results import Group, RewardBatch, SampleResult


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

    def sample(self, batch: Batch, group: Group) -> SampleResult:
        """The result of the one sample of a complete group."""
        import numpy as np

        from guerdon._result.totals import total, unscorable
        from guerdon.results import SampleResult
        from guerdon.status import Status

        names, _ = self._columns
        weights = np.asarray(self.weights, np.float32)
        failed = batch.failures() if group.status.any() else []
        return SampleResult(
            rewards=dict(zip(names, group.rewards[0].tolist(), strict=True)),
            status=dict(zip(names, map(Status, group.status[0].tolist()), strict=True)),
            reasons={names[function]: reason for sample, function, _, reason, *_ in failed if sample == group.index},
            total=float(total(group.rewards, unscorable(group.rewards, group.status, self.incomplete), weights)[0]),
        )
