"""A generated batch whose rewards may be missing, and what of a trainer's books belongs to it.

- F-1  What a batch logs is logged when it is trained on, not when it was generated, as if both were at the same time.
- F-2  Rewards that TRL has not seen yet leave no trace in the books: what depends on them is logged from the true ones.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon.integrations.trl.pipeline.scoring import Scoring

if TYPE_CHECKING:
    from guerdon.integrations.trl.pipeline.overlap import Early


@dataclass
class Flight:
    """One generated batch on its way to training.

    Attributes:
        batch: The rows that it was generated from, as the data gave them.
        step: Optimizer steps that the policy had made that wrote it.
        number: Which batch of the run, counted from 0.
    """

    batch: Any
    step: int
    number: int
    scoring: Scoring | None = None
    early: Early | None = None  # of a pipeline with overlap
    # What TRL gave its reward functions.
    inputs: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[Any] = field(default_factory=list)
    completions: list[Any] = field(default_factory=list)
    # What TRL made of it, but for the advantages.
    output: dict[str, Any] = field(default_factory=dict)
    books: dict[str, Any] = field(default_factory=lambda: empty_books())
    tokens: int = 0
    generator: Any = None  # the state of the random numbers where TRL would shuffle the rows
    born: float = field(default_factory=time.monotonic)
    in_flight: int = 0  # groups without all rewards, over all batches, when training asked for this one

    def cancel(self) -> None:
        if self.scoring is not None:
            self.scoring.cancel()


@dataclass(frozen=True)
class Replay:
    """What a replay of TRL's function is about: some rows of a batch, in this order."""

    flight: Flight
    rows: Sequence[int]

    def pick(self, values: Sequence[Any]) -> list[Any]:
        return [values[row] for row in self.rows]


def empty_books() -> dict[str, Any]:
    """The attributes in which TRL's trainer notes what it logs later, empty."""
    return {
        "_metrics": {"train": defaultdict(list), "eval": defaultdict(list)},
        "_logs": {
            "images": deque(),
            "prompt": deque(),
            "completion": deque(),
            "rewards": defaultdict(deque),
            "advantages": deque(),
            "extra": defaultdict(deque),
        },
        "_pending_extra_logs": defaultdict(list),
        "_pending_metrics": defaultdict(list),
    }


@contextmanager
def replaced(thing: object, values: Mapping[str, Any]) -> Iterator[None]:
    """Other values for attributes of an object, for a while."""
    before = {name: getattr(thing, name) for name in values}
    for name, value in values.items():
        setattr(thing, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)


def take(output: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Some rows of what TRL made of a batch; what is not by row (a count of tokens) stays whole.

    Args:
        output: Tensors with a row per sample, tensors without dimensions, lists with an entry per sample, or None.
    """
    picked: dict[str, Any] = {}
    for name, value in output.items():
        if isinstance(value, list):
            picked[name] = [value[row] for row in rows]
        elif value is None or value.ndim == 0:
            picked[name] = value
        else:
            picked[name] = value[list(rows)]
    return picked
