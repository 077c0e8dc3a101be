"""A generated batch, whose rewards may still be missing, with all that training on it needs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon.integrations.trl.pipeline.scored_arguments import ScoredArguments
from guerdon.integrations.trl.pipeline.scoring import BatchScoring

if TYPE_CHECKING:
    from guerdon.integrations.trl.pipeline.overlap import EarlyScoring


@dataclass
class GeneratedBatch:
    """One generated batch on its way to training.

    Attributes:
        source: The rows that it was generated from, as the data gave them.
        policy_step: Optimizer steps that the policy that wrote it had made.
        given: What TRL gave its reward functions: the data, prompts, completions, token ids.
        output: What TRL made of it, except the advantages.
        logs: The trainer's logs of its generation, kept apart until training on it begins.
        rng_state: The state of the random numbers where TRL would shuffle the rows.
        groups_in_flight: Groups without all rewards, over all batches, when training asked for this
            one.
    """

    source: Any
    policy_step: int
    scoring: BatchScoring | None = None
    early_scoring: EarlyScoring | None = None  # of a pipeline with overlap
    given: Sequence[Any] = ()
    scored: ScoredArguments | None = None  # where a class behind the pipeline may change them
    environments: list[Any] = field(default_factory=list)
    output: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, Any] = field(default_factory=dict)
    num_tokens: int = 0
    rng_state: Any = None
    # Log-probabilities of a trainer whose rewards hold a KL penalty: of the policy and of the
    # reference, by token while the batch is generated, then a sum for each row.
    log_probabilities: list[Any] = field(default_factory=list)
    generated_at: float = field(default_factory=time.monotonic)
    groups_in_flight: int = 0

    def cancel(self) -> None:
        if self.scoring is not None:
            self.scoring.cancel()


@dataclass
class Replay:
    """The rows of a batch, in this order, for which TRL's function is called a second time.

    Attributes:
        generates: Whether the function asked for what it would generate.
        rewards: Whether it asked for rewards.
        live: The trainer's attributes that have other values in a replay, for an override.
    """

    generated: GeneratedBatch
    rows: Sequence[int]
    generates: bool = False
    rewards: bool = False
    live: Mapping[str, Any] = field(default_factory=dict)
    _given: int = 0

    def pick(self, values: Sequence[Any]) -> list[Any]:
        return [values[row] for row in self.rows]

    def log_probabilities(self, *_: Any, **__: Any) -> tuple[Any | None, None, None]:
        """The next that the batch was generated with, as if each completion were one token; in
        place of TRL's method."""
        known = self.generated.log_probabilities
        if self._given == len(known):
            return None, None, None
        self._given += 1
        return known[self._given - 1][list(self.rows)].unsqueeze(1), None, None


def select_rows(output: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Some rows of what TRL made of a batch; what is not by row (a count of tokens) stays whole.

    Args:
        output: Tensors with a row per sample, tensors without dimensions, lists with an entry per
            sample, or None.
    """
    selected: dict[str, Any] = {}
    for name, value in output.items():
        if isinstance(value, list):
            selected[name] = [value[row] for row in rows]
        elif value is None or value.ndim == 0:
            selected[name] = value
        else:
            selected[name] = value[list(rows)]
    return selected
