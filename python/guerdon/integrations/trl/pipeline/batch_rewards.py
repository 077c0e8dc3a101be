"""A mixin before a trainer of TRL: the rewards of a batch, as TRL's function asks for them.

TRL makes a batch in one function, ``_generate_and_score_completions``. Its first pass starts
rewards on the dispatchers; in a replay the function gets the finished ones, and stubs that return
the earlier generation. Ranks agree on errors before they raise.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from accelerate.utils import gather_object

from guerdon.integrations.trl.patching import Mixin, patched
from guerdon.integrations.trl.pipeline.generated_batch import GeneratedBatch, Replay
from guerdon.integrations.trl.pipeline.options import Pipeline
from guerdon.integrations.trl.pipeline.overlap import EarlyScoring, columns_of
from guerdon.integrations.trl.pipeline.rank_exchange import RankExchange
from guerdon.integrations.trl.pipeline.scoring import BatchScoring
from guerdon.integrations.trl.pipeline.trl_families import Family, changed
from guerdon.integrations.trl.trainer_context import raised_together

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher
    from guerdon.integrations.trl.pipeline.completion_feed import CompletionFeed


class BatchRewards(Mixin):  # type: ignore[misc]  # trl is not typed
    """The mixin. Parts of a trainer work without its ``__init__``, as TRL's do."""

    pipeline = Pipeline()
    dispatchers: tuple[Dispatcher, ...]
    environments: Any = None  # TRL's, where it has some
    _feed: CompletionFeed | None = None  # of completions, from the rank that asks a server
    _family: ClassVar[Family]  # which of TRL's trainers it is
    _generating: GeneratedBatch | None = None  # in TRL's function now, for the first time
    _replaying: Replay | None = None  # in TRL's function now, for the second time

    @staticmethod
    def scoring_of(generated: GeneratedBatch) -> BatchScoring:
        """The rewards of a batch that TRL's function was called for."""
        if generated.scoring is None:
            raise changed("TRL's trainer generated a batch without asking for its rewards")
        return generated.scoring

    # --- what TRL's function calls

    def _generate(self, prompts: Any) -> Any:
        replay = self._replaying
        if replay is not None:
            replay.generates = True
            return self._family.generated([[self._tokenizer.eos_token_id]] * len(prompts), [""] * len(prompts))
        generated, early = self._generating, None
        # If overlap is on, completions are scored as they end.
        if generated is not None and self.pipeline.overlap and self._rank_exchange(len(prompts)) is None:
            scoring = generated.scoring = self._new_scoring(len(prompts))
            early = EarlyScoring(self, scoring, generated.source, prompts, self._common, self._feed)
            generated.early_scoring = early
        output = super()._generate(prompts)
        if early is not None and not early.watched:
            raise changed(
                "overlap: TRL's trainer generated a batch without `_generate_single_turn`, where completions are seen to end",
                "Leave overlap out of pipeline=.",
            )
        known = len(self._family.generated([], []))
        if self.pipeline.defers and len(output) != known:
            raise changed(
                f"_generate gave {len(output)} values, and a batch that waits for its rewards repeats {known}"
            )
        return output

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **named: Any) -> Any:
        early = None if self._generating is None else self._generating.early_scoring
        if early is None:
            return super()._generate_single_turn(prompt_ids, *args, **named)
        with early.watching(prompt_ids):
            return super()._generate_single_turn(prompt_ids, *args, **named)

    def _get_per_token_logps_and_entropies(self, *args: Any, **named: Any) -> Any:
        replay = self._replaying
        if replay is not None:
            return replay.log_probabilities(), None, None
        computed = super()._get_per_token_logps_and_entropies(*args, **named)
        if self._generating is not None and self._family.penalizes and self.pipeline.defers:
            self._generating.log_probabilities.append(computed[0])
        return computed

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        replay = self._replaying
        if replay is not None:
            replay.rewards = True
            batch = replay.generated  # the arguments are stubs
            return self._finished(self.scoring_of(batch), replay.rows, *map(replay.pick, batch.given))
        generated = self._generating or GeneratedBatch(inputs, 0)  # of an evaluation
        generated.given = inputs, prompts, completions, completion_ids_list
        generated.environments = self.environments or []
        generated.generated_at = time.monotonic()
        scoring = self._new_scoring(len(prompts))
        try:
            scoring = self._begin(generated, scoring)
            self._score_others(scoring, *generated.given)
            if self._generating is not None and self.pipeline.defers:
                rows = len(prompts) * self.accelerator.num_processes
                return torch.zeros(rows, len(self.reward_funcs), device=self.accelerator.device)
            generated.groups_in_flight = scoring.open_groups()
            self.complete(scoring)
        except BaseException:
            scoring.cancel()
            raise
        return self._finished(scoring, range(len(prompts)), *generated.given)

    @property
    def _group_size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    def _new_scoring(self, rows: int) -> BatchScoring:
        return BatchScoring(self.reward_funcs, rows, self._group_size, self._rank_exchange(rows))

    def _rank_exchange(self, rows: int) -> RankExchange | None:
        """The exchange of rows with other ranks; None if no group function sees a split group."""
        ranks, size = self.accelerator.num_processes, self._group_size
        if ranks == 1 or rows % size == 0 or self.environments is not None:
            return None
        if all(dispatcher._submitter.group_function is None for dispatcher in self.dispatchers):
            return None
        return RankExchange(self.accelerator.process_index, ranks, rows, size)

    def complete(self, scoring: BatchScoring) -> None:
        """Waits for a batch's rewards; what functions recorded is then in TRL's logs."""
        scoring.complete()
        # A rank that scored nothing recorded nothing: TRL would miss columns of its rows.
        if scoring.exchange is not None:
            for column in set(gather_object(list(self._pending_extra_logs))):
                self._pending_extra_logs.setdefault(column, [])

    @property
    def _common(self) -> dict[str, Any]:
        """Returns TRL's arguments for reward functions beside the batch."""
        logs = {"log_extra": self._log_completion_extra, "log_metric": self._log_metric}
        return {"trainer_state": self.state, **logs}

    def _begin(self, generated: GeneratedBatch, scoring: BatchScoring) -> BatchScoring:
        """Starts the rewards of a batch, on all ranks or on none.

        Returns:
            The scoring, or the one that began while the batch was generated.
        """
        inputs, prompts, completions, completion_ids = generated.given
        early = generated.early_scoring
        with raised_together(self):
            if early is not None and early.finish(completions, completion_ids):
                scoring = early.scoring
            else:
                if early is not None:
                    early.scoring.cancel()
                generated.scoring = scoring
                whole = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
                live = {} if self.environments is None else {"environments": self.environments}
                scoring.begin({**columns_of(inputs), **whole, **self._common, **live})
        return scoring

    def _score_others(
        self, scoring: BatchScoring, inputs: Any, prompts: Any, completions: Any, completion_ids: Any
    ) -> None:
        """Runs the trainer's own functions."""
        if not scoring.others:
            return
        functions = list(self.reward_funcs)
        for index in set(range(len(functions))) - set(scoring.others):
            functions[index] = _zeros
        with patched(self, {"reward_funcs": functions}):
            # Past an override of the user's, which applies once, to all rewards.
            rewards = self._family.base._calculate_rewards(self, inputs, prompts, completions, completion_ids)
        first = self.accelerator.process_index * len(prompts)
        scoring.take_others(rewards[first : first + len(prompts)].cpu().numpy())

    def _finished(self, scoring: BatchScoring, rows: Any, *given: Any) -> torch.Tensor:
        """The rewards of all ranks for some rows of each; they are complete."""
        with patched(self, {"reward_funcs": scoring.columns(list(rows))}):
            return super()._calculate_rewards(*given)


def _zeros(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)
