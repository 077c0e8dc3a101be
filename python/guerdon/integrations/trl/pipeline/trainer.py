"""TRL's GRPO trainer with rewards that don't hold it up: the same class, and `pipeline=`.

TRL makes a batch in one function, ``_generate_and_score_completions``. It is called in two passes:
the first generates, starts the rewards and sees zeros in their place; the replay gets the true
rewards, generates nothing, and gives the advantages and the logs. Without a pipeline there is one
pass, and all is trained and logged as by TRL. Collectives run on the main thread, the same ones in
the same order on every rank.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import trl
from accelerate.utils import gather_object

from guerdon._trainer.context import TrainerMemory
from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonError, RegistrationError
from guerdon.integrations.trl.patching import patched
from guerdon.integrations.trl.pipeline.generated_batch import GeneratedBatch, Replay
from guerdon.integrations.trl.pipeline.mini_batch import MiniBatches
from guerdon.integrations.trl.pipeline.options import Pipeline, check_pipeline
from guerdon.integrations.trl.pipeline.overlap import EarlyScoring, columns_of
from guerdon.integrations.trl.pipeline.prefetcher import Prefetcher, batches_left
from guerdon.integrations.trl.pipeline.rank_exchange import RankExchange
from guerdon.integrations.trl.pipeline.scoring import BatchScoring
from guerdon.integrations.trl.pipeline.split_vllm_client import SplitVLLMClient
from guerdon.integrations.trl.pipeline.trainer_logs import empty_logs, log_generation, log_pipeline, pipeline_metrics
from guerdon.integrations.trl.reward_funcs import dispatchers_of, resolve_reward_funcs, set_weights
from guerdon.integrations.trl.tool_calls.concurrent_calls import ConcurrentToolCalls
from guerdon.integrations.trl.trainer_context import TRLTrainerContext, raise_together


class GRPOTrainer(ConcurrentToolCalls, trl.GRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """``trl.GRPOTrainer`` whose reward functions run on Guerdon.

    Takes all that TRL's takes, by the same names and in the same order. Each reward function may be
    what TRL knows (a function of its batch contract, a reward model or its name), a decorated
    function, a `guerdon.StatefulReward`, or a `Dispatcher` or its columns; `reward_funcs` may be a
    dispatcher itself. A dispatcher's weights hold where ``args.reward_weights`` is None; where the
    dispatcher is the whole list, weights other than its own are refused at the first batch.
    Functions that belong to no dispatcher get one of the trainer's own.

    Args:
        pipeline: What goes on while rewards are computed: a `Pipeline`, or ``"off"``,
            ``"overlap"``, ``"mini_batch"``, ``"one_step"`` or ``"all"``.

    Attributes:
        pipeline: The `Pipeline`.
        dispatchers: The dispatchers behind the reward functions, the trainer's own last. Those that
            were given are the caller's to close; the trainer's own ends with it.

    Raises:
        RegistrationError: A reward function can't work, or the pipeline can't with this trainer;
            the message says why.
    """

    _buffered_inputs: Any  # TRL's: the pieces of the batch that is trained on

    def __init__(
        self, model: Any, reward_funcs: Any = None, *rest: Any, pipeline: Pipeline | str = "off", **named: Any
    ) -> None:
        self.pipeline = Pipeline.of(pipeline)
        self._generated_ahead: deque[GeneratedBatch] = deque()  # not trained on yet, oldest first
        self._trained_batch: GeneratedBatch | None = None  # in training
        self._generating: GeneratedBatch | None = None  # in TRL's function now, for the first time
        self._replaying: Replay | None = None  # in TRL's function now, for the second time
        self._prefetcher = Prefetcher()
        self._num_generated = 0
        self._rng_after_shuffle: torch.Tensor | None = None  # restored after TRL's shuffle
        functions, weights, self._own_dispatcher = resolve_reward_funcs(reward_funcs)
        super().__init__(model, functions, *rest, **named)
        if self.args.reward_weights is None and weights is not None:
            set_weights(self.reward_weights, weights)
        self.dispatchers: tuple[Dispatcher, ...] = dispatchers_of(self.reward_funcs)
        if any(dispatcher.closed for dispatcher in self.dispatchers):
            raise RegistrationError(
                "a dispatcher in reward_funcs is closed: make a new one, or close it after the training."
            )
        self.pipeline = check_pipeline(self.pipeline, self, self.dispatchers)
        if self.pipeline.overlap and self.use_vllm and self.accelerator.is_main_process:
            self.vllm_generation.vllm_client = SplitVLLMClient(self.vllm_generation.vllm_client)

    # --- the loop

    def _inner_training_loop(self, *args: Any, **named: Any) -> Any:
        self._prefetcher = Prefetcher()
        self._num_generated = 0
        try:
            return super()._inner_training_loop(*args, **named)
        finally:
            self._cancel_ahead()

    def _run_epoch(self, *args: Any, **named: Any) -> Any:
        self._prefetcher.epoch = named["epoch"]
        return super()._run_epoch(*args, **named)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        if not self.pipeline.lookahead:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        left = batches_left(self.state, self.args, self.callback_handler.train_dataloader)
        batches, follows = self._prefetcher.next_batches(epoch_iterator, num_batches, left)
        if not follows:  # the loop left an epoch early: the rest of it is not trained on
            self._cancel_ahead()
        return super().get_batch_samples(iter(batches), len(batches), device)

    def training_step(self, *args: Any, **named: Any) -> Any:
        loss = super().training_step(*args, **named)
        self._prefetcher.trained()
        return loss

    def _cancel_ahead(self) -> None:
        """Cancels what was not trained on: no batch of a run goes on after it."""
        for generated in (*self._generated_ahead, *filter(None, (self._trained_batch, self._generating))):
            generated.cancel()
        self._generated_ahead.clear()
        self._trained_batch = self._generating = None
        if self.pipeline.defers:
            self._buffered_inputs = None

    # --- a batch

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training or not self.pipeline.mini_batch:
            prepared = super()._prepare_inputs(generation_batch)
            if self._rng_after_shuffle is not None:
                torch.set_rng_state(self._rng_after_shuffle)
                self._rng_after_shuffle = None
            return prepared
        if self._step % self._cycle == 0 or self._buffered_inputs is None:
            self._buffered_inputs = MiniBatches(self, self._next_batch(generation_batch))
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if not self.pipeline.defers:
            generated = self._trained_batch = self._new_batch(inputs)
            self._generating = generated
            try:
                output = super()._generate_and_score_completions(inputs)
            finally:
                self._generating = None
            self._log_pipeline(generated)
            return output
        generated = self._next_batch(inputs)
        self.log_generation(generated)
        self.complete(self.scoring_of(generated))
        output = {**generated.output, "advantages": self.replay(generated, range(len(generated.prompts)), record=True)}
        if generated.rng_state is not None:
            self._rng_after_shuffle = torch.get_rng_state()
            torch.set_rng_state(generated.rng_state)
        return output

    @property
    def _cycle(self) -> int:
        """Micro-steps on one generated batch."""
        return int(self.args.steps_per_generation * self.num_iterations)

    def _next_batch(self, batch: Any) -> GeneratedBatch:
        """The batch generated from these rows; batches ahead of it are generated first."""
        generated = self._generated_ahead.popleft() if self._generated_ahead else None
        self._trained_batch = generated
        if generated is not None and generated.source is not batch:
            raise GuerdonError(
                "the trainer asks for another batch than the one generated ahead: this version of transformers reads its "
                "training data in a way that lookahead does not support. Use pipeline='mini_batch' or 'off'."
            )
        if generated is None:
            generated = self._trained_batch = self._generate_batch(batch)
        into = self._step % self._cycle  # not 0 where the loop left an epoch inside a batch
        for ahead in range(len(self._generated_ahead) + 1, self.pipeline.lookahead + 1):
            upcoming = self._prefetcher.peek(ahead * self._cycle - into, self.callback_handler.train_dataloader)
            if upcoming is None:
                break
            self._generated_ahead.append(self._generate_batch(upcoming))
        generated.groups_in_flight = sum(
            self.scoring_of(one).open_groups() for one in (generated, *self._generated_ahead)
        )
        return generated

    def _new_batch(self, batch: Any) -> GeneratedBatch:
        generated = GeneratedBatch(batch, self.state.global_step, self._num_generated)
        self._num_generated += 1
        return generated

    def _generate_batch(self, batch: Any) -> GeneratedBatch:
        """Generates a batch and starts its rewards; its logs are kept apart."""
        generated = self._generating = self._new_batch(batch)
        generated.logs = empty_logs()
        values = dict(generated.logs)
        # Trained on later, the importance ratio needs the log-probabilities of the policy that
        # generated. TRL computes them where it thinks that the batch outlives an optimizer step.
        if self.pipeline.lookahead:
            values["num_iterations"] = self.args.gradient_accumulation_steps + 1
        tokens = self.state.num_input_tokens_seen
        try:
            with patched(self, values):
                generated.output = super()._generate_and_score_completions(batch)
        except BaseException:
            generated.cancel()
            raise
        finally:
            self._generating = None
            generated.num_tokens = self.state.num_input_tokens_seen - tokens
            self.state.num_input_tokens_seen = tokens
        generated.rng_state = torch.get_rng_state()
        torch.randperm(len(batch))  # drawn as by TRL's shuffle, so that later draws are the same
        return generated

    def replay(self, generated: GeneratedBatch, rows: Any, *, record: bool) -> Any:
        """Advantages of some rows of a batch, by TRL's own function, from complete rewards.

        Args:
            rows: Rows of this rank, whole groups; on every rank as many.
            record: Whether the trainer logs what the function logs.

        Returns:
            A tensor with one advantage per row.
        """
        self._replaying = Replay(generated, list(rows))
        neutral: dict[str, Any] = {
            "use_vllm": False,
            "beta": 0.0,
            "environment_factories": None,
            "environments": None,
            "tools": [],
        }
        logs = {} if record else empty_logs()
        try:
            with patched(self, {**neutral, **logs}):
                inputs = [{"prompt": prompt} for prompt in self._replaying.pick(generated.prompts)]
                advantages = super()._generate_and_score_completions(inputs)["advantages"]
        finally:
            self._replaying = None
        if record:
            self._log_pipeline(generated)
        return advantages

    def log_generation(self, generated: GeneratedBatch) -> None:
        """Logs what of a batch is known before its rewards."""
        self.state.num_input_tokens_seen += generated.num_tokens
        log_generation(self, generated)

    def _log_pipeline(self, generated: GeneratedBatch) -> None:
        """Logs how the pipeline did with a batch whose rewards are complete."""
        scoring = self.scoring_of(generated)
        step, count = self.state.global_step, self._num_generated
        log_pipeline(self, pipeline_metrics(generated, scoring, step=step, num_generated=count))

    @staticmethod
    def scoring_of(generated: GeneratedBatch) -> BatchScoring:
        if generated.scoring is None:
            raise GuerdonError(
                "TRL's trainer generated a batch without asking for its rewards: this version of trl computes them in a "
                "way that guerdon's trainer does not support. Use trl.GRPOTrainer with reward_funcs=dispatcher.reward_funcs."
            )
        return generated.scoring

    # --- what TRL's function calls

    def _generate(self, prompts: Any) -> Any:
        if self._replaying is None:
            generated = self._generating
            if generated is not None and self.pipeline.overlap and self._rank_exchange(len(prompts)) is None:
                generated.scoring = self._new_scoring(len(prompts))
                generated.early_scoring = EarlyScoring(self, generated.scoring, generated.source, prompts, self._common)
            return super()._generate(prompts)
        count = len(prompts)
        token = [[self._tokenizer.eos_token_id]] * count
        return token, token, None, self._replaying.pick(self._replaying.generated.completions), None, {}, None, []

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **named: Any) -> Any:
        early = None if self._generating is None else self._generating.early_scoring
        if early is None:
            return super()._generate_single_turn(prompt_ids, *args, **named)
        with early.watching(prompt_ids):
            return super()._generate_single_turn(prompt_ids, *args, **named)

    def _get_per_token_logps_and_entropies(self, *args: Any, **named: Any) -> Any:
        if self._replaying is None:
            return super()._get_per_token_logps_and_entropies(*args, **named)
        return None, None, None

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        replay = self._replaying
        if replay is not None:
            return self._finished(
                self.scoring_of(replay.generated),
                replay.rows,
                replay.pick(replay.generated.inputs),
                prompts,
                completions,
            )
        generated = self._generating
        if generated is not None:
            generated.inputs, generated.prompts, generated.completions = inputs, prompts, completions
            generated.generated_at = time.monotonic()
        scoring = self._new_scoring(len(prompts))
        try:
            scoring = self._begin(scoring, inputs, prompts, completions, completion_ids_list)
            waiting = self._other_rewards(scoring, inputs, prompts, completions, completion_ids_list)
            if generated is not None and self.pipeline.defers:
                return waiting
            if generated is not None:
                generated.groups_in_flight = scoring.open_groups()
            self.complete(scoring)
        except BaseException:
            scoring.cancel()
            raise
        return self._finished(scoring, range(len(prompts)), inputs, prompts, completions)

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
        return RankExchange(self.accelerator.process_index, ranks, rows, size, TRLTrainerContext(TrainerMemory(), self))

    def complete(self, scoring: BatchScoring) -> None:
        """Waits for a batch's rewards; what functions recorded is then in TRL's logs."""
        scoring.complete()
        # A rank that scored nothing recorded nothing: TRL would miss columns of its rows.
        if scoring.exchanges:
            for column in set(gather_object(list(self._pending_extra_logs))):
                self._pending_extra_logs.setdefault(column, [])

    @property
    def _common(self) -> dict[str, Any]:
        """What TRL gives reward functions beside the batch."""
        logs = {"log_extra": self._log_completion_extra, "log_metric": self._log_metric}
        return {"trainer_state": self.state, **logs}

    def _begin(
        self, scoring: BatchScoring, inputs: Any, prompts: Any, completions: Any, completion_ids: Any
    ) -> BatchScoring:
        """Starts the rewards of a batch, on all ranks or on none.

        Returns:
            The scoring, or the one that began while the batch was generated.
        """
        generated = self._generating
        early = None if generated is None else generated.early_scoring
        error: Exception | None = None
        try:
            if early is not None and early.finish(completions, completion_ids):
                scoring = early.scoring
            else:
                if early is not None:
                    early.scoring.cancel()
                if generated is not None:
                    generated.scoring = scoring
                whole = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
                live = {} if self.environments is None else {"environments": self.environments}
                scoring.begin({**columns_of(inputs), **whole, **self._common, **live})
        except Exception as refused:
            error = refused
        raise_together(self, error)
        return scoring

    def _other_rewards(
        self, scoring: BatchScoring, inputs: Any, prompts: Any, completions: Any, completion_ids: Any
    ) -> torch.Tensor:
        """Runs the trainer's own functions; the rewards of all ranks, 0 for the others."""
        count = len(prompts)
        if not scoring.others:
            return torch.zeros(
                count * self.accelerator.num_processes, len(self.reward_funcs), device=self.accelerator.device
            )
        functions = list(self.reward_funcs)
        for index in set(range(len(functions))) - set(scoring.others):
            functions[index] = _zeros
        with patched(self, {"reward_funcs": functions}):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        first = self.accelerator.process_index * count
        scoring.take_others(rewards[first : first + count].cpu().numpy())
        return rewards

    def _finished(self, scoring: BatchScoring, rows: Any, inputs: Any, prompts: Any, completions: Any) -> torch.Tensor:
        """The rewards of all ranks for some rows of each; they are complete."""
        with patched(self, {"reward_funcs": scoring.columns(list(rows))}):
            return super()._calculate_rewards(inputs, prompts, completions, [[]] * len(prompts))


def _zeros(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)
