"""A mixin before a trainer of TRL: the rewards of a batch, as TRL's function asks for them.

TRL makes a batch in one function, ``_generate_and_score_completions``. Its first pass starts
rewards on the dispatchers; in a replay the function gets the finished ones, and stubs that return
the earlier generation. Ranks agree on errors before they raise.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from accelerate.utils import gather_object

from guerdon.errors import DataError, GuerdonWarning, RewardFailureError
from guerdon.integrations.trl.patching import Mixin, patched
from guerdon.integrations.trl.pipeline.generated_batch import GeneratedBatch, Replay
from guerdon.integrations.trl.pipeline.options import Pipeline
from guerdon.integrations.trl.pipeline.overlap import EarlyScoring, columns_of
from guerdon.integrations.trl.pipeline.rank_exchange import RankExchange
from guerdon.integrations.trl.pipeline.scored_arguments import ScoredArguments, copied
from guerdon.integrations.trl.pipeline.scoring import BatchScoring
from guerdon.integrations.trl.pipeline.trl_families import Family, changed, overriding
from guerdon.integrations.trl.trainer_context import raised_together

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher
    from guerdon.integrations.trl.pipeline.completion_feed import CompletionFeed

_PENDING: Final = ("_pending_extra_logs", "_pending_metrics")  # TRL's, of what functions record


class BatchRewards(Mixin):  # type: ignore[misc]  # trl is not typed
    """The mixin. Parts of a trainer work without its ``__init__``, as TRL's do."""

    pipeline = Pipeline()
    dispatchers: tuple[Dispatcher, ...]
    environments: Any = None  # TRL's, where it has some
    _metrics: Any  # TRL's
    # Classes behind the pipeline that override `_calculate_rewards`, and whether one changes what
    # functions get.
    _reward_overrides: Sequence[type] = ()
    _scores_anew = False
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
        generated, early = self._generating, None
        # If overlap is on, completions are scored as they end.
        if generated is not None and self.pipeline.overlap and self._rank_exchange(len(prompts)) is None:
            scoring = generated.scoring = self._new_scoring(len(prompts))
            early = EarlyScoring(self, scoring, generated.source, prompts, self._common, self._feed)
            hooks = ("_generate", "_generate_and_score_completions", "_calculate_rewards")
            if any(overriding(type(self), name) for name in hooks):
                early.scored = ScoredArguments({**columns_of(early.inputs), "prompts": prompts, **early.given})
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

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        replay = self._replaying
        if replay is not None:
            replay.rewards = True
            batch = replay.generated  # the arguments are stubs
            picked = [replay.pick(values) for values in batch.given]
            if not self._reward_overrides:
                return self._finished(batch, replay.rows, *picked)
            # Copies, since an override may change them, and rows may be given again.
            with patched(self, replay.live):
                return self._finished(batch, replay.rows, *copied(picked))
        generated = self._generating or GeneratedBatch(inputs, 0)  # of an evaluation
        generated.given = inputs, prompts, completions, completion_ids_list
        generated.environments = self.environments or []
        generated.generated_at = time.monotonic()
        scoring = self._new_scoring(len(prompts))
        try:
            try:
                scoring = self._begin(generated, scoring)
            except DataError as error:  # alike on all ranks
                if self._scores_anew or not self._reward_overrides:
                    raise
                self._score_anew(f"the functions can't be called before it ({error})")
                generated.cancel()
                generated.scored = None
                scoring = generated.scoring = self._new_scoring(len(prompts))
            self._score_others(scoring, *generated.given)
            if self._generating is not None and self.pipeline.defers:
                rows = len(prompts) * self.accelerator.num_processes
                return torch.zeros(rows, len(self.reward_funcs), device=self.accelerator.device)
            generated.groups_in_flight = scoring.open_groups()
            self.complete(scoring)
        except BaseException:
            scoring.cancel()
            raise
        return self._finished(generated, range(len(prompts)), *generated.given)

    @property
    def _group_size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    def _new_scoring(self, rows: int) -> BatchScoring:
        if self._scores_anew:
            return BatchScoring((), rows, self._group_size)
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
        if self._scores_anew:  # what was begun is not needed
            scoring.give_up()
            return
        if self._reward_overrides:
            scoring.pending_logs = {name: _lists_of(getattr(self, name)) for name in _PENDING}
        try:
            scoring.complete()
        except RewardFailureError as error:  # alike on all ranks
            if not self._reward_overrides:
                raise
            scoring.give_up(error)  # raised if the override changes nothing
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
            whole = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
            live = {} if self.environments is None else {"environments": self.environments}
            given = {**columns_of(inputs), **whole, **self._common, **live}
            if self._reward_overrides and not self._scores_anew:
                generated.scored = ScoredArguments(given)
            if early is not None and early.finish(given):
                scoring = early.scoring
            else:
                if early is not None:
                    early.scoring.cancel()
                generated.scoring = scoring
                scoring.begin(given)
        return scoring

    def _score_others(
        self, scoring: BatchScoring, inputs: Any, prompts: Any, completions: Any, completion_ids: Any
    ) -> None:
        """Runs the trainer's own functions."""
        others = scoring.others
        if not others:
            return
        functions = list(self.reward_funcs)
        for index in set(range(len(functions))) - set(others):
            functions[index] = _zeros
        with patched(self, {"reward_funcs": functions}):
            # Past an override of the user's, which applies once, to all rewards.
            rewards = self._family.base._calculate_rewards(self, inputs, prompts, completions, completion_ids)
        first = self.accelerator.process_index * len(prompts)
        scoring.values[:, others] = rewards[first : first + len(prompts), others].cpu().numpy()

    def _finished(self, generated: GeneratedBatch, rows: Sequence[int], *given: Any) -> torch.Tensor:
        """The rewards of all ranks for some rows of each; they are complete."""
        scoring, kept = self.scoring_of(generated), generated.scored
        columns = scoring.columns(list(rows))
        if not self._reward_overrides:
            with patched(self, {"reward_funcs": columns}):
                return super()._calculate_rewards(*given)
        if not self._scores_anew and kept is not None:
            before = copied(given)
            logged = {mode: _lists_of(values) for mode, values in self._metrics.items()}
            watched = [kept.watched(column, rows) for column in columns]
            raised = None
            try:
                with patched(self, {"reward_funcs": watched}):
                    rewards = super()._calculate_rewards(*given)
            except Exception as error:
                if not (kept.changed or scoring.failures):
                    raise
                raised = error  # the override may not expect such rewards
            changed = set().union(*gather_object([kept.changed]))
            if not changed:
                if scoring.failures:
                    raise scoring.failures.pop() from raised
                return rewards
            self._score_anew(f"it changes {', '.join(sorted(changed))}")
            given = before
            for mode, values in logged.items():  # the override logs again
                self._metrics[mode].clear()
                self._metrics[mode].update(values)
        if kept is not None:  # what was begun has logged
            for name in _PENDING:
                getattr(self, name).clear()
                getattr(self, name).update(scoring.pending_logs.get(name, {}))
        started = time.monotonic()
        rewards = super()._calculate_rewards(*given)
        waited = time.monotonic() - started
        scoring.waited_s += waited
        scoring.reward_s += waited
        return rewards

    def _score_anew(self, why: str) -> None:
        """From now on columns are called as by TRL's own trainer: what an override gives them is
        scored."""
        self._scores_anew = True
        self.pipeline = replace(self.pipeline, overlap=False, mini_batch=False)
        warnings.warn(
            f"{self._reward_overrides[0].__name__} overrides _calculate_rewards, and {why}. The functions are called with what "
            "it gives them, and nothing is hidden behind generation. To have rewards computed while the trainer goes on, "
            "make its changes inside the reward functions.",
            GuerdonWarning,
            stacklevel=2,
        )


def _lists_of(logs: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in logs.items()}


def _zeros(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)
