"""Makes the result of a complete batch by its dispatcher's options."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from guerdon._functions.spec import FunctionSpec
from guerdon._system.warning import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from guerdon._batch.failure_rate import FailureRate
    from guerdon._batch.failures import BatchFailures
    from guerdon._batch.quiet_rewards import QuietRewards
    from guerdon._native import Batch, BatchResult
    from guerdon.results import Group, RewardBatch, SampleResult


@dataclass(frozen=True)
class ResultBuilder:
    """The same for all batches of one dispatcher.

    Attributes:
        specs: The functions.
        weights: One per function.
        incomplete: What becomes of a sample on which a function failed.
        max_failure_rate: Where a function has none of its own.
        example: Gives the beginning of a completion that was scored, for warnings.
    """

    specs: tuple[FunctionSpec, ...]
    weights: tuple[float, ...]
    incomplete: str
    max_failure_rate: float
    example: Callable[[], str] = str
    # Called with each new result, on the thread that requests it; none of them raises.
    listeners: list[Callable[[RewardBatch], None]] = field(default_factory=list)

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(spec.name for spec in self.specs), tuple(spec.shape for spec in self.specs)

    @cached_property
    def _weights(self) -> NDArray[np.float32]:
        import numpy as np

        return np.asarray(self.weights, np.float32)

    @cached_property
    def _count_nonzero(self) -> Callable[[NDArray[np.uint8]], int]:
        # `any` takes twice as long on an array of a few cells.
        from numpy import count_nonzero

        return count_nonzero

    @cached_property
    def _result_class(self) -> type[RewardBatch]:
        from guerdon.results.reward_batch import RewardBatch

        return RewardBatch

    @cached_property
    def priced(self) -> dict[str, bool]:
        """The functions that make requests, and whether they have a price."""
        return {spec.name: all(plan.cost.price is not None for plan in spec.plans) for spec in self.specs if spec.plans}

    @cached_property
    def _pure(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.specs if spec.pure)

    @cached_property
    def _token_users(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.specs if spec.uses_tokens)

    @cached_property
    def _cached(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.specs if spec.cache is not None)

    @cached_property
    def _gated(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.specs if spec.run_if is not None)

    @cached_property
    def _with_fallback(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.specs if spec.can_fall_back)

    @cached_property
    def _deferrable(self) -> frozenset[str]:
        """The functions whose calls a server often puts off: those that make requests or await."""
        return frozenset(spec.name for spec in self.specs if spec.is_async or spec.plans)

    @property
    def failure_rate(self) -> FailureRate:
        """The functions' failures, of the batches that no trainer brought."""
        known: FailureRate | None = vars(self).get("_failure_rate")
        # Not a cached property: two threads at once would count in two records.
        return known or vars(self).setdefault("_failure_rate", self.new_failure_rate())

    @cached_property
    def _quiet(self) -> QuietRewards:
        from guerdon._batch.quiet_rewards import QuietRewards

        return QuietRewards(self._columns[0], self.example)

    @cached_property
    def _unbilled(self) -> set[str]:
        """Judges with a price whose server has not reported tokens yet; a warning takes one out."""
        return {name for name, has_price in self.priced.items() if has_price} & self._token_users

    def _warn_of_missing_usage(self, result: RewardBatch) -> None:
        """Warns once of a judge whose answers report no tokens: its costs are not known."""
        for name in tuple(self._unbilled):
            used = result.usage[name]
            is_scored = self._count_nonzero(result.status[..., result.functions.index(name)]) < len(result)
            if used["unknown"] < used["requests"]:
                self._unbilled.discard(name)
            elif used["requests"] and is_scored:
                self._unbilled.discard(name)
                warn(
                    f"reward function {name!r}: the answers of its server report no tokens, so price= can't say what they cost: "
                    "result.usage counts nothing for them, and max_cost= goes by an estimate of each request."
                )

    def allow_equal(self) -> None:
        """Allows functions that always give the same number: they are not reported."""
        self._quiet.allow_equal()

    def new_failure_rate(self) -> FailureRate:
        """An empty record of the functions' failures."""
        from guerdon._batch.failure_rate import FailureRate

        default = self.max_failure_rate
        own = ((spec.name, spec.policy.max_failure_rate) for spec in self.specs)
        return FailureRate({name: default if limit is None else limit for name, limit in own})

    def build(self, batch: BatchResult) -> RewardBatch:
        """The result of a complete batch."""
        names, shapes = self._columns
        kinds = self._gated, self._pure, self._cached, self._token_users, self._with_fallback, self._deferrable
        result = self._result_class(batch, names, shapes, self._weights, self.incomplete, self.priced, *kinds)
        self._quiet.check(result.rewards, result.status)
        self._warn_of_missing_usage(result)
        for listener in self.listeners:
            listener(result)
        return result

    def count(self, result: RewardBatch) -> tuple[BatchFailures, str | None]:
        """The failures of a result, and the error message if the first one is too many."""
        from guerdon._batch.failures import count, first_failure_raises

        counted = count(result, self.specs)
        return counted, first_failure_raises(counted, self.specs)

    def judge(self, result: RewardBatch) -> str | None:
        """Counts a result that no trainer brought, once; the error message if failures are too
        many."""
        if not result.failures() and not self._count_nonzero(result.status):  # all are OK
            self.failure_rate.add_whole(len(result))
            return None
        counted, message = self.count(result)
        too_many = self.failure_rate.add([counted])
        return "\n".join(filter(None, (message, too_many))) or None

    def sample(self, batch: Batch, group: Group) -> SampleResult:
        """The result of the one sample of a complete group."""
        from guerdon.results import SampleResult
        from guerdon.results.status import Status
        from guerdon.results.totals import total, unscorable

        self._quiet.check(group.rewards, group.status)
        names, _ = self._columns
        failed = batch.reasons(group.index) if group.status.any() else []
        return SampleResult(
            rewards=dict(zip(names, group.rewards[0].tolist(), strict=True)),
            status=dict(zip(names, map(Status, group.status[0].tolist()), strict=True)),
            reasons={names[function]: reason for function, reason in failed},
            total=float(
                total(group.rewards, unscorable(group.rewards, group.status, self.incomplete), self._weights)[0]
            ),
        )
