"""A generated batch, whose rewards may still be missing, with all that training on it needs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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

    def given_of(self, rows: Sequence[int]) -> list[list[Any]]:
        """What TRL gave its reward functions of some rows."""
        return [[values[row] for row in rows] for values in self.given]

    def cancel(self) -> None:
        if self.scoring is not None:
            self.scoring.cancel()


class Replay:
    """A second call of TRL's function, for these rows of a batch in this order.

    It replaces methods of the trainer, a user's overrides included: nothing is generated a second
    time, and an override of the rewards gets what the rows were generated with.

    Attributes:
        attributes: What the trainer has during the call, by name.
        complete: Whether the function asked for what it would generate and for its rewards.
    """

    def __init__(self, trainer: Any, generated: GeneratedBatch, rows: Sequence[int]) -> None:
        self.generated = generated
        self.rows = list(rows)
        self._trainer = trainer
        self._calculate = trainer._calculate_rewards
        self._log_probabilities = iter(generated.log_probabilities)
        self._asked: set[str] = set()
        self.attributes = {
            "_replaying": self,
            "_generate": self._stubs,
            "_get_per_token_logps_and_entropies": self._known_log_probabilities,
            "_calculate_rewards": self._rewards,
        }

    @property
    def complete(self) -> bool:
        return len(self._asked) == 2

    def _stubs(self, prompts: Sequence[Any]) -> Any:
        """Completions of one token."""
        self._asked.add("generation")
        trainer = self._trainer
        return trainer._family.generated([[trainer._tokenizer.eos_token_id]] * len(prompts), [""] * len(prompts))

    def _known_log_probabilities(self, *_: Any, **__: Any) -> tuple[Any, None, None]:
        """The next that the batch was generated with, as if each completion were one token."""
        known = next(self._log_probabilities, None)
        return None if known is None else known[self.rows].unsqueeze(1), None, None

    def _rewards(self, *_: Any) -> Any:
        """The rewards of the rows, whose arguments are TRL's for the whole batch."""
        self._asked.add("rewards")
        return self._calculate(*self.generated.given_of(self.rows))


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
