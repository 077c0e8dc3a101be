"""Results: arrays first, an object per cell only when one is read.

- Cell ``[p, g, f]`` is function ``f`` on sample ``p * G + g``, in every array.
- `rewards` keeps the true cells; that a sample is unscorable shows in `total` and `advantages`
  alone.
- A failed cell without a number makes its sample unscorable; with ``incomplete="sum"`` a sample is
  unscorable only without any number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from guerdon.results import totals
from guerdon.results.crash_text import without_worker_frames
from guerdon.results.records import RecordedColumns, decode
from guerdon.results.status import Status
from guerdon.results.usage import usage_of, usage_text

if TYPE_CHECKING:
    import pandas
    import torch
    from numpy.typing import NDArray

    from guerdon._native import BatchResult

Scale = Literal["group", "batch", "none"]


_HEAD = ("function", "mean", "std", "outcomes")


@dataclass(frozen=True)
class Failure:
    """One failed cell.

    Attributes:
        function: Name of the reward function.
        sample: Index of the sample in the batch, ``p * G + g``.
        status: `Status.TIMEOUT`, `ERROR`, `CRASHED` or `CANCELLED`.
        reason: What happened, in a line.
        traceback: Where in the user's code, if known.
        attempts: How many tries it had.
        queue_s: Seconds that it waited.
        run_s: Seconds that its last attempt ran.
    """

    function: str
    sample: int
    status: Status
    reason: str
    traceback: str | None
    attempts: int
    queue_s: float
    run_s: float

    def __str__(self) -> str:
        tries = "" if self.attempts == 1 else f" after {self.attempts} attempts"
        return f"{self.function!r} on sample {self.sample}: {self.status.label}{tries}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Group:
    """One complete group: the ``G`` completions of prompt ``index``.

    Attributes:
        index: Which prompt of the batch.
        rewards: ``[G, F]`` float32, NaN where there is no reward.
        status: ``[G, F]`` uint8, see `Status`.
    """

    index: int
    rewards: NDArray[np.float32]
    status: NDArray[np.uint8]


@dataclass(frozen=True)
class SampleResult:
    """The rewards of one sample: what `Dispatcher.ascore_one` returns.

    Attributes:
        rewards: By function; NaN where there is no reward.
        status: By function, see `Status`.
        reasons: What happened, in a line, by function; of those that failed alone.
        total: Weighted sum of the rewards; NaN if the sample is unscorable, as in
            `RewardBatch.total`.
    """

    rewards: dict[str, float]
    status: dict[str, Status]
    reasons: dict[str, str]
    total: float


class RewardBatch:
    """Rewards of one batch of ``P`` prompts with ``G`` completions each, by ``F`` functions.

    Attributes:
        rewards: ``[P, G, F]`` float32, NaN where there is no reward.
        status: ``[P, G, F]`` uint8, see `Status`.
        functions: The ``F`` names.
        weights: ``[F]`` float32.
        incomplete: ``"drop"`` or ``"sum"``, what becomes of a sample on which one function failed.
        elapsed_s: Seconds from submission to the last outcome.
        tail_s: Seconds from the last sample's arrival to the last outcome: of a batch that was
            submitted whole the same, of one that samples were added to what scoring took beyond
            them.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> length = reward(lambda text: float(len(text)), name="length")
        >>> batch = Dispatcher([length], workers=1).score(completions=["a", "bcd"], num_generations=2)
        >>> batch.total.tolist(), [round(x, 3) for x in batch.advantages()[0].tolist()]
        ([[1.0, 3.0]], [-0.707, 0.707])
    """

    def __init__(
        self,
        batch: BatchResult,
        functions: Sequence[str],
        shapes: Sequence[str],
        weights: Sequence[float] | NDArray[np.float32],
        incomplete: str,
        priced: Mapping[str, bool] = MappingProxyType({}),
        gated: frozenset[str] = frozenset(),
        pure: frozenset[str] = frozenset(),
        cached: frozenset[str] = frozenset(),
        token_users: frozenset[str] = frozenset(),
        with_fallback: frozenset[str] = frozenset(),
        deferrable: frozenset[str] = frozenset(),
    ) -> None:
        self._batch: BatchResult | None = batch
        self._priced = dict(priced)  # functions that make requests, and whether they have a price
        self._shapes = tuple(shapes)
        self._gated = gated
        self._pure = pure
        self._cached = cached
        self._token_users = token_users
        self._with_fallback = with_fallback
        self._deferrable = deferrable
        self.incomplete = incomplete
        self.functions = tuple(functions)
        # a copy: users may change it
        self.weights: NDArray[np.float32] = np.array(weights, np.float32)
        self.rewards: NDArray[np.float32] = batch.rewards()
        self.status: NDArray[np.uint8] = batch.status()
        self.elapsed_s: float = batch.elapsed_s
        self.tail_s: float = batch.tail_s
        self._failed_cells: list[tuple[int, int, int, str, str | None, int, float, float]] = batch.failures()

    @property
    def _source(self) -> BatchResult:
        assert self._batch is not None  # pickling reads everything that comes from here first
        return self._batch

    @cached_property
    def attempts(self) -> NDArray[np.uint16]:
        """``[P, G, F]``: tries of each cell's call; 0 where a cache folder had its outcome."""
        return self._source.attempts()

    @cached_property
    def queue_s(self) -> NDArray[np.float64]:
        """``[P, G, F]``: seconds that each cell's call waited."""
        return self._source.queue_s()

    @cached_property
    def run_s(self) -> NDArray[np.float64]:
        """``[P, G, F]``: seconds that the last attempt of each cell's call ran."""
        return self._source.run_s()

    @cached_property
    def timings(self) -> dict[str, dict[str, float]]:
        """By function: ``run_p50_s``, ``run_p90_s``, ``run_p99_s``, ``run_max_s``, ``run_total_s``,
        ``queue_p50_s``, ``queue_p99_s``, ``queue_max_s``; the numbers of ``retries``, of
        ``deferrals`` (429), and of attempts ``excused`` by an open circuit breaker; and of the
        samples that got their outcome from an identical call, ``shared``, or from the function's
        cache folder, ``cached``."""
        return {name: self._source.timings(index) for index, name in enumerate(self.functions)}

    @cached_property
    def failed_samples(self) -> NDArray[np.bool_]:
        """``[P, G]``: samples on which a function failed without leaving a number."""
        return totals.failed_samples(self.rewards, self.status)

    @cached_property
    def unscorable(self) -> NDArray[np.bool_]:
        """``[P, G]``: samples without a total, because a function failed on them."""
        return totals.unscorable(self.rewards, self.status, self.incomplete)

    @cached_property
    def skipped(self) -> dict[str, tuple[int, ...]]:
        """The samples that ``run_if`` skipped, ascending, by the name of the function; functions
        that skipped none are left out."""
        if not (self.status == Status.SKIPPED).any():
            return {}
        rows = self.status.reshape(-1, len(self.functions))
        found = {
            name: tuple(np.flatnonzero(rows[:, place] == Status.SKIPPED).tolist())
            for place, name in enumerate(self.functions)
        }
        return {name: samples for name, samples in found.items() if samples}

    @cached_property
    def total(self) -> NDArray[np.float32]:
        """``[P, G]`` float32: weighted sum of the cells that hold a number; NaN for an unscorable
        sample."""
        return totals.total(self.rewards, self.unscorable, self.weights)

    def advantages(self, scale: Scale = "group") -> NDArray[np.float32]:
        """``[P, G]`` float32: what TRL's ``GRPOTrainer`` makes of these rewards
        (``multi_objective_aggregation="sum_then_normalize"``).

        The total minus the mean of its group's scorable samples; 0 for an unscorable sample.

        Args:
            scale: ``"group"`` divides by the group's standard deviation + 1e-4, ``"batch"`` by the
                whole batch's, ``"none"`` not at all.
        """
        if scale not in ("group", "batch", "none"):
            raise ValueError(f"scale={scale!r}: expected 'group', 'batch' or 'none'.")
        return totals.advantages(self.total, scale)

    def to_torch(self) -> torch.Tensor:
        """`rewards` as a tensor that shares its memory: ``[P, G, F]`` float32.

        Raises:
            ImportError: PyTorch is not installed.
        """
        try:
            import torch
        except ImportError as error:
            raise ImportError("to_torch() needs torch: pip install torch. `rewards` is a NumPy array.") from error
        return torch.from_numpy(self.rewards)

    def to_pandas(self) -> pandas.DataFrame:
        """One row a cell, in the order of samples, then functions; needs pandas.

        Columns: ``sample``, ``group``, ``function``, ``reward`` (NaN if there is none), ``status``
        (its label), ``reason`` (None unless it failed), ``attempts``, ``queue_s``, ``run_s``
        (seconds).

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas. to_dicts() needs nothing.") from error
        prompts, generations, count = self.rewards.shape
        labels = np.array([status.label for status in Status], dtype=object)
        reasons = np.full((prompts * generations, count), None, dtype=object)
        for sample, function, _, reason, *_ in self._failed_cells:
            reasons[sample, function] = reason
        samples = np.repeat(np.arange(prompts * generations), count)
        return pandas.DataFrame(
            {
                "sample": samples,
                "group": samples // generations,
                "function": np.tile(np.array(self.functions, dtype=object), prompts * generations),
                "reward": self.rewards.ravel(),
                "status": labels[self.status.ravel()],
                "reason": reasons.ravel(),
                "attempts": self.attempts.ravel(),
                "queue_s": self.queue_s.ravel(),
                "run_s": self.run_s.ravel(),
            }
        )

    def failures(self) -> list[Failure]:
        """Every failed cell, in the order of samples; also those that ``on_failure`` gave a number
        or made abstained."""
        return list(self._failures) if self._failed_cells else []

    @cached_property
    def _failures(self) -> tuple[Failure, ...]:
        return tuple(
            Failure(
                self.functions[function],
                sample,
                Status(status),
                reason,
                without_worker_frames(traceback),
                attempts,
                queue_s,
                run_s,
            )
            for sample, function, status, reason, traceback, attempts, queue_s, run_s in self._failed_cells
        )

    @cached_property
    def usage(self) -> dict[str, dict[str, float]]:
        """Usage of judges and reward services on this batch, by function: ``requests``,
        ``unknown``, ``prompt_tokens``, ``cached_tokens``, ``completion_tokens``,
        ``reasoning_tokens`` and ``cost``.

        Every request counts: retries, hedges that lost, answers without a score. ``unknown`` are
        those whose answer never came or did not say. ``cost`` is NaN for a function without
        ``price=``.
        """
        used: dict[str, dict[str, float]] = {}
        for index, name in enumerate(self.functions):
            if name in self._priced:
                used[name] = usage_of(self._source.usage(index), self._priced[name])
        return used

    @cached_property
    def extra(self) -> dict[str, list[Any]]:
        """Columns recorded by ``log_extra``, by the extra fields of dict results, and by judges
        (both ``<function>/<field>``), as a trainer would get them: one value a sample."""
        extra: dict[str, list[Any]] = {}
        for recorded in self._recorded:
            for column, values in recorded.extra:
                extra.setdefault(column, []).extend(values)
        return extra

    @cached_property
    def metrics(self) -> dict[str, list[float]]:
        """Values recorded by ``log_metric``, by name."""
        metrics: dict[str, list[float]] = {}
        for recorded in self._recorded:
            for name, value in recorded.metrics:
                metrics.setdefault(name, []).append(value)
        return metrics

    def to_dicts(self) -> list[dict[str, Any]]:
        """One plain dict per sample: ``{"index", "rewards": {name: value or None}, "status": {name:
        "ok"}}``."""
        count = len(self.functions)
        labels = [status.label for status in Status]
        rewards = self.rewards.reshape(-1, count).tolist()
        states = self.status.reshape(-1, count).tolist()
        return [
            {
                "index": index,
                "rewards": {name: v if v == v else None for name, v in zip(self.functions, values, strict=True)},
                "status": {name: labels[s] for name, s in zip(self.functions, row, strict=True)},
            }
            for index, (values, row) in enumerate(zip(rewards, states, strict=True))
        ]

    @cached_property
    def _recorded(self) -> list[RecordedColumns]:
        """Returns the records of each function, in the order of the functions."""
        prompts, generations, _ = self.rewards.shape
        return [
            decode(
                name, shape, prompts * generations, generations, self._source.records(index), self._source.extra(index)
            )
            for index, (name, shape) in enumerate(zip(self.functions, self._shapes, strict=True))
        ]

    def __len__(self) -> int:
        """Number of samples."""
        prompts, generations, _ = self.rewards.shape
        return int(prompts * generations)

    def __getstate__(self) -> dict[str, Any]:
        for name in ("attempts", "queue_s", "run_s", "timings", "usage", "_recorded"):
            getattr(self, name)
        state = {**self.__dict__, "_batch": None}
        state.pop("_failures", None)  # made again of `_failed_cells`
        return state

    def __repr__(self) -> str:
        width = max(8, *(len(name) for name in self.functions))
        lines = [
            f"{name:<{width}} {mean:>9} {std:>9}  {outcomes}" for name, mean, std, outcomes in [_HEAD, *self._rows()]
        ]
        lines += [f"{name:<{width}} {usage_text(used)}" for name, used in self.usage.items() if used["requests"]]
        return "\n  ".join([self._summary(), *lines])

    def _repr_html_(self) -> str:
        from guerdon.results.html_table import html_table

        return html_table(self._summary(), _HEAD, self._rows())

    def _summary(self) -> str:
        prompts, generations, count = self.rewards.shape
        shape = f"{prompts} prompts x {generations} completions x {count} functions"
        return f"RewardBatch: {shape} in {self.elapsed_s:.3g} s, {int(self.unscorable.sum())} samples unscorable"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Name, mean, standard deviation and outcomes of each function."""
        rows = []
        for index, name in enumerate(self.functions):
            values = self.rewards[:, :, index]
            values = values[~np.isnan(values)].astype(np.float64)
            mean = f"{values.mean():.4g}" if values.size else "-"
            std = f"{values.std(ddof=1):.4g}" if values.size > 1 else "-"
            counts = np.bincount(self.status[:, :, index].ravel(), minlength=len(Status))
            outcomes = ", ".join(f"{counts[status]} {status.label}" for status in Status if counts[status])
            rows.append((name, mean, std, outcomes))
        return rows
