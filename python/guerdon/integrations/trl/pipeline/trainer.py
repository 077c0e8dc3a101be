"""TRL's trainers whose training and generation go on while rewards are computed, by `pipeline=`.

TRL's function is called in two passes: the first generates, starts the rewards and sees zeros in
their place; the replay gets the true rewards, generates nothing, and gives the advantages and the
logs. Without a pipeline there is one pass, and training and logs are TRL's. Collectives run on the
main thread, the same ones in the same order on every rank.
"""

from __future__ import annotations

import functools
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
import transformers
import trl

from guerdon._batch.trainer.column import RewardColumn
from guerdon._batch.trainer.context import TrainerMemory
from guerdon._functions.callables import is_reward_model
from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonError, GuerdonWarning, RegistrationError
from guerdon.integrations.trl.patching import patched, replace_argument
from guerdon.integrations.trl.pipeline.batch_rewards import BatchRewards
from guerdon.integrations.trl.pipeline.checking import check_pipeline, without_replays
from guerdon.integrations.trl.pipeline.completion_feed import CompletionFeed
from guerdon.integrations.trl.pipeline.generated_batch import GeneratedBatch, Replay
from guerdon.integrations.trl.pipeline.mini_batch import MiniBatches
from guerdon.integrations.trl.pipeline.options import Pipeline
from guerdon.integrations.trl.pipeline.prefetcher import Prefetcher, batches_left
from guerdon.integrations.trl.pipeline.split_vllm_client import SplitVLLMClient
from guerdon.integrations.trl.pipeline.trainer_logs import empty_logs, log_generation, log_pipeline, recording
from guerdon.integrations.trl.pipeline.trl_families import GRPO, changed, family_of, override_problems, overriding
from guerdon.integrations.trl.reward_funcs import dispatchers_of, resolve_reward_funcs
from guerdon.integrations.trl.tool_calls.concurrent_calls import ConcurrentToolCalls
from guerdon.integrations.trl.trainer_context import TRLTrainerContext


class PipelinedTrainer(BatchRewards):
    """The mixin before a trainer of TRL."""

    _buffered_inputs: Any  # TRL's: the pieces of the batch that is trained on

    def __init__(self, *args: Any, pipeline: Pipeline | str = "off", **named: Any) -> None:
        self.pipeline = Pipeline.of(pipeline)
        self._generated_ahead: deque[GeneratedBatch] = deque()  # not trained on yet, oldest first
        self._trained_batch: GeneratedBatch | None = None  # in training
        self._prefetcher = Prefetcher()
        self._rng_after_shuffle: torch.Tensor | None = None  # restored after TRL's shuffle
        self._own_dispatcher: Dispatcher | None = None
        weights: list[float] | None = None

        def resolve(given: Any) -> list[Any]:
            nonlocal weights
            functions, weights, self._own_dispatcher = resolve_reward_funcs(given)
            return functions

        args, named = replace_argument(type(self), "reward_funcs", args, named, resolve)
        super().__init__(*args, **named)
        if any(not isinstance(one, RewardColumn) and not is_reward_model(one) for one in self.reward_funcs):
            # Those that a class brings itself.
            self.reward_funcs[:], _, self._own_dispatcher = resolve_reward_funcs(self.reward_funcs)
        if self.args.reward_weights is None:
            for index, weight in enumerate(weights or ()):  # those behind are environments'
                self.reward_weights[index] = weight
        self.dispatchers: tuple[Dispatcher, ...] = dispatchers_of(self.reward_funcs)
        if any(dispatcher.closed for dispatcher in self.dispatchers):
            raise RegistrationError(
                "a dispatcher in reward_funcs is closed: make a new one, or close it after the training."
            )
        overrides = overriding(type(self), "_calculate_rewards")
        kinds = type(self).__mro__
        in_front = kinds[: kinds.index(PipelinedTrainer)]
        self._reward_overrides = [one for one in overrides if one not in in_front]
        self.pipeline = without_replays(self.pipeline, [one for one in overrides if one in in_front])
        problems = override_problems(type(self), PipelinedTrainer)
        self.pipeline = check_pipeline(self.pipeline, self, self.dispatchers, problems)
        if self.pipeline.mini_batch:
            for one in overrides:
                warnings.warn(
                    f"mini_batch: {one.__name__} overrides _calculate_rewards, which gets a few groups at a time, in the order in "
                    "which they are scored: what it computes over a whole batch differs from TRL's.",
                    GuerdonWarning,
                    stacklevel=2,
                )
        if self.pipeline.overlap and self.use_vllm:
            if self.accelerator.num_processes > 1:
                self._feed = CompletionFeed(self.accelerator.process_index)
            if self.accelerator.is_main_process:
                self.vllm_generation.vllm_client = SplitVLLMClient(self.vllm_generation.vllm_client, self.args.seed)

    # --- the loop

    def _inner_training_loop(self, *args: Any, **named: Any) -> Any:
        self._prefetcher = Prefetcher()
        for dispatcher in self.dispatchers:  # before anything is generated
            context = TRLTrainerContext(TrainerMemory(), self)
            context.check_weights(dispatcher._reward_list)
        try:
            output = super()._inner_training_loop(*args, **named)
            if isinstance(self._buffered_inputs, MiniBatches) and self._buffered_inputs.finish():
                self.log({})
            return output
        finally:
            self._cancel_ahead()

    def _run_epoch(self, *args: Any, **named: Any) -> Any:
        self._prefetcher.epoch = named["epoch"]
        return super()._run_epoch(*args, **named)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        if not self.pipeline.lookahead:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        dataloader = self.callback_handler.train_dataloader
        left = batches_left(self.state, self.args, dataloader)
        batches, follows = self._prefetcher.next_batches(epoch_iterator, num_batches, left, dataloader)
        if not follows:  # the loop left an epoch early: the rest of it is not trained on
            self._cancel_ahead()
        return super().get_batch_samples(iter(batches), len(batches), device)

    def training_step(self, *args: Any, **named: Any) -> Any:
        loss = super().training_step(*args, **named)
        self._prefetcher.trained()
        return loss

    def _cancel_ahead(self) -> None:
        """Cancels the batches that were not trained on: no batch of a run goes on after it."""
        for generated in self._generated_batches():
            generated.cancel()
        self._generated_ahead.clear()
        self._trained_batch = None
        if self.pipeline.defers or isinstance(self._buffered_inputs, MiniBatches):
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
            generated = self._trained_batch = GeneratedBatch(inputs, self.state.global_step)
            with patched(self, {"_generating": generated}):
                output = super()._generate_and_score_completions(inputs)
            if generated.scoring is not None and generated.scoring.completed:
                log_pipeline(self, generated)
            else:  # an override in front took the rewards elsewhere
                generated.cancel()
            return output
        generated = self._next_batch(inputs)
        log_generation(self, generated)
        self.complete(self.scoring_of(generated))
        output = {**generated.output, "advantages": self.replay(generated, range(len(generated.source)), record=True)}
        self._rng_after_shuffle = torch.get_rng_state()
        torch.set_rng_state(generated.rng_state)
        return output

    @property
    def _cycle(self) -> int:
        """Micro-steps on one generated batch."""
        return int(self.args.steps_per_generation * self.num_iterations)

    def _next_batch(self, batch: Any) -> GeneratedBatch:
        """The batch generated from these rows; batches ahead of it are generated first."""
        if self._generated_ahead:
            generated = self._trained_batch = self._generated_ahead.popleft()
            if generated.source is not batch:
                raise GuerdonError(
                    "the trainer asks for another batch than the one generated ahead: transformers "
                    f"{transformers.__version__} reads its training data in a way that lookahead does not support. "
                    "Use pipeline='mini_batch' or 'off'."
                )
        else:
            generated = self._trained_batch = GeneratedBatch(batch, self.state.global_step)
            self._generate_batch(generated)
        into = self._step % self._cycle  # not 0 where the loop left an epoch inside a batch
        for ahead in range(len(self._generated_ahead) + 1, self.pipeline.lookahead + 1):
            upcoming = self._prefetcher.peek(ahead * self._cycle - into)
            if upcoming is None:
                break
            self._generated_ahead.append(GeneratedBatch(upcoming, self.state.global_step))
            self._generate_batch(self._generated_ahead[-1])
        generated.groups_in_flight = sum(self.scoring_of(one).open_groups() for one in self._generated_batches())
        return generated

    def _generated_batches(self) -> list[GeneratedBatch]:
        """The batch in training and those ahead of it, the one that is generated now included."""
        return [*filter(None, [self._trained_batch]), *self._generated_ahead]

    def _environments_in_use(self) -> list[Any]:
        batches = self._generated_batches()
        missing = (one for one in batches if one.scoring is not None and not one.scoring.completed)
        return [environment for one in missing for environment in one.environments]

    def _generate_batch(self, generated: GeneratedBatch) -> None:
        """Generates a batch and starts its rewards; its logs are kept apart."""
        generated.logs = empty_logs(self)
        values = {**generated.logs, "_generating": generated}
        # Trained on later, the importance ratio needs the log-probabilities of the policy that
        # generated. TRL computes them where it thinks that the batch outlives an optimizer step.
        if self.pipeline.lookahead:
            values["num_iterations"] = self.args.gradient_accumulation_steps + 1
        if self._family.penalizes:
            values |= self._recording_log_probabilities(generated)
        tokens = self.state.num_input_tokens_seen
        with patched(self, values):
            generated.output = super()._generate_and_score_completions(generated.source)
        generated.num_tokens = self.state.num_input_tokens_seen - tokens
        self.state.num_input_tokens_seen = tokens
        if self.pipeline.lookahead and self._family.ratio not in generated.output:
            raise changed(
                f"lookahead: TRL's trainer gave no {self._family.ratio!r} with a batch generated ahead, without which its "
                "importance ratio would be 1",
                "Use pipeline='mini_batch' or 'off'.",
            )
        mask = generated.output["completion_mask"]
        generated.log_probabilities = [(each * mask).sum(1) for each in generated.log_probabilities]
        generated.rng_state = torch.get_rng_state()
        # Drawn as by TRL's shuffle, so that later draws are the same.
        torch.randperm(len(generated.source))

    def _recording_log_probabilities(self, generated: GeneratedBatch) -> dict[str, Any]:
        """Returns methods, in front of all overrides, that keep the log-probabilities that TRL's
        function gets."""
        generate, compute = self._generate, self._get_per_token_logps_and_entropies

        def generating(prompts: Any) -> Any:
            output = generate(prompts)
            generated.log_probabilities.clear()  # an override of the generation asked for these
            return output

        def computing(*args: Any, **named: Any) -> Any:
            # An override that calls itself for parts of a batch is asked once.
            with patched(self, {"_get_per_token_logps_and_entropies": compute}):
                computed = compute(*args, **named)
            generated.log_probabilities.append(computed[0])
            return computed

        return {"_generate": generating, "_get_per_token_logps_and_entropies": computing}

    def replay(self, generated: GeneratedBatch, rows: Any, *, record: bool) -> Any:
        """Advantages of some rows of a batch, by TRL's own function, from complete rewards.

        Args:
            rows: Rows of this rank, whole groups; on every rank as many.
            record: Whether the trainer logs what the function logs.

        Returns:
            A tensor with one advantage per row.
        """
        replay = Replay(generated, list(rows))
        logs = recording(self, generated) if record else nullcontext()

        def generate(prompts: Any) -> Any:
            replay.generates = True
            return self._family.generated([[self._tokenizer.eos_token_id]] * len(prompts), [""] * len(prompts))

        # On the instance, so that an override in front runs once a batch.
        stubs = {"_generate": generate, "_get_per_token_logps_and_entropies": replay.log_probabilities}
        stubs |= self._family.neutral
        if self._reward_overrides:
            live = {"environments": replay.pick(generated.environments) if generated.environments else None}
            replay.live = {**{name: getattr(self, name, None) for name in stubs}, **live}
        neutral = {**stubs, "_replaying": replay, **({} if record else empty_logs(self))}
        with patched(self, neutral), logs:
            advantages = super()._generate_and_score_completions([{"prompt": ""}] * len(replay.rows))["advantages"]
        if not (replay.generates and replay.rewards and len(advantages) == len(replay.rows)):
            raise changed("TRL's trainer made the advantages of a batch without asking for its rewards")
        if record:
            log_pipeline(self, generated)
        return advantages


class GRPOTrainer(PipelinedTrainer, ConcurrentToolCalls, trl.GRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """``trl.GRPOTrainer`` whose reward functions run on Guerdon.

    Takes all that TRL's takes, by the same names and in the same order. Each reward function may be
    what TRL knows (a function of its batch contract, a reward model or its name), a decorated
    function, a `guerdon.StatefulReward`, or a `Dispatcher` or its columns; `reward_funcs` may be a
    dispatcher itself. A dispatcher's weights hold where ``args.reward_weights`` is None; where the
    dispatcher is the whole list, weights other than its own are refused when training starts.
    Functions that belong to no dispatcher get one of the trainer's own.

    A subclass that overrides `_calculate_rewards` goes on without ``mini_batch`` and ``lookahead``,
    with a warning. `pipelined` gives both to a class that derives from TRL's.

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

    _family = family_of(trl.GRPOTrainer)

    def __init__(
        self, model: Any, reward_funcs: Any = None, *rest: Any, pipeline: Pipeline | str = "off", **named: Any
    ) -> None:
        super().__init__(model, reward_funcs, *rest, pipeline=pipeline, **named)


@functools.cache
def pipelined(trainer_class: type) -> type:
    """A trainer's class with `pipeline=`, for one of your own or of TRL's.

    Overrides of the class stay in force: its loss, its generation, its rewards. Tools and
    environments of a class of the GRPO family run concurrently, as `GRPOTrainer`'s do.

    Args:
        trainer_class: ``trl.GRPOTrainer``, ``trl.RLOOTrainer``, or a class that derives from one of
            them, like ``trl.experimental.gmpo.GMPOTrainer``.

    Returns:
        A class that takes the same arguments, and ``pipeline=`` by name; reward functions may be
        what `GRPOTrainer` takes. The same one for the same class. A part of a pipeline that can't
        work with what the class overrides is refused when a trainer is made.

    Raises:
        RegistrationError: The class has other parts than pipelines need; the message says which.

    Examples:
        >>> import trl
        >>> from guerdon.integrations.trl import pipelined
        >>> class Shaped(trl.GRPOTrainer):
        ...     def _compute_loss(self, model, inputs):
        ...         return 0.5 * super()._compute_loss(model, inputs)
        >>> pipelined(Shaped).__name__
        'PipelinedShaped'
    """
    if not isinstance(trainer_class, type):
        raise RegistrationError(f"pipelined({trainer_class!r}): expected a trainer's class, not an instance.")
    if issubclass(trainer_class, PipelinedTrainer):
        return trainer_class
    family = family_of(trainer_class)
    mixins = (PipelinedTrainer, ConcurrentToolCalls) if family is GRPO else (PipelinedTrainer,)
    name = f"Pipelined{trainer_class.__name__}"
    body = {"_family": family, "__module__": trainer_class.__module__, "__doc__": trainer_class.__doc__}
    return type(name, (*mixins, trainer_class), body)
