"""Rows of a journal that count, those of some runs and steps; and the runs and steps of all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon._insight.journal.schema import import_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SeenRows", "Selection"]


@dataclass(frozen=True)
class Selection:
    """A choice of rows.

    Attributes:
        runs: Their names; None for all.
        first_step: The first step; None for the journal's first, rows without a step included if
            `last_step` is None too.
        last_step: The last one, itself included; None for the journal's last.
    """

    runs: Collection[str] | None = None
    first_step: int | None = None
    last_step: int | None = None

    @property
    def of_steps(self) -> bool:
        """Returns whether only some steps count."""
        return self.first_step is not None or self.last_step is not None

    def mask(self, batch: Any) -> NDArray[np.bool_] | None:
        """Returns for each row of the record batch whether it counts; None if all do."""
        masks = []
        if self.runs is not None:
            masks.append(_among(batch.column("run"), self.runs))
        if self.of_steps:
            steps = batch.column("step")
            masks.append(steps.is_valid().to_numpy(zero_copy_only=False))
            numbers = steps.fill_null(0).to_numpy(zero_copy_only=False)
            if self.first_step is not None:
                masks.append(numbers >= self.first_step)
            if self.last_step is not None:
                masks.append(numbers <= self.last_step)
        return np.logical_and.reduce(masks) if masks else None

    def rows(self, batch: Any) -> Any:
        """The rows of the record batch that count."""
        mask = self.mask(batch)
        return batch if mask is None or mask.all() else batch.filter(import_arrow().array(mask))

    def filter(self) -> Any:
        """Condition on the statistics of row groups that may have rows that count; None if all
        do."""
        field = import_arrow().compute.field("step")
        bounds = [] if self.first_step is None else [field >= self.first_step]
        bounds += [] if self.last_step is None else [field <= self.last_step]
        return bounds[0] & bounds[-1] if bounds else None

    def steps_text(self) -> str:
        """The steps that count, in words."""
        first, last = self.first_step, self.last_step
        if first == last:
            return f"step {first}"
        if first is None or last is None:
            return f"steps up to {last}" if first is None else f"steps from {first}"
        return f"steps {first} to {last}"


class SeenRows:
    """Runs and steps of all rows of a journal, those included that don't count.

    Attributes:
        runs: Their rows by name.
        steps: The first and the last one; None as long as no row has any.
    """

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        self.steps: tuple[int, int] | None = None

    def add(self, batch: Any) -> None:
        """Take the rows of a record batch."""
        for entry in batch.column("run").value_counts():
            name = entry["values"].as_py() or ""
            self.runs[name] = self.runs.get(name, 0) + entry["counts"].as_py()
        steps = batch.column("step").drop_null().to_numpy(zero_copy_only=False)
        if len(steps):
            ends = (int(steps.min()), int(steps.max()), *(self.steps or ()))
            self.steps = min(ends), max(ends)


def _among(names: Any, chosen: Collection[str]) -> NDArray[np.bool_]:
    """Returns whether each name is one of these."""
    arrow = import_arrow()
    known = arrow.array(list(chosen), arrow.string())
    if not arrow.types.is_dictionary(names.type):
        return np.asarray(arrow.compute.is_in(names, value_set=known).to_numpy(zero_copy_only=False), bool)
    listed = arrow.compute.is_in(names.dictionary, value_set=known).take(names.indices)
    return np.asarray(listed.fill_null(False).to_numpy(zero_copy_only=False), bool)
