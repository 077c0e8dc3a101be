"""TRL's GRPO trainer with rewards that don't hold it up: the same class, and `pipeline=`.

TRL makes a batch in one function, ``_generate_and_score_completions``: generate, score, advantages, books. Here it is
called as it is, in two passes. The first generates; its rewards are begun and stand as zeros. The second, the replay,
is the same function on the finished completions with the true rewards, with everything left out that generates or
computes with the model: it gives the advantages and what is logged, in TRL's own way.

- G-1  Without a pipeline all that is trained on and logged is what TRL's trainer trains on and logs.
- G-2  Each generated sample is trained on as often as TRL would, in every mode; nothing is generated beyond the end.
- G-3  What is trained on later than TRL would has the log-probabilities of the policy that wrote it.
- G-4  However a run ends, no batch of it goes on afterwards.
- G-5  Collectives run on the main thread, the same ones in the same order on every rank, whatever is scored first.
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
from guerdon.integrations.trl.pipeline import trainer_logs
from guerdon.integrations.trl.pipeline.generated_batch import Flight, Replay, empty_books, replaced
from guerdon.integrations.trl.pipeline.mini_batch import MiniBatches
from guerdon.integrations.trl.pipeline.options import Pipeline, check
from guerdon.integrations.trl.pipeline.overlap import Early, columns_of
from guerdon.integrations.trl.pipeline.prefetcher import Reader
from guerdon.integrations.trl.pipeline.rank_exchange import Exchange
from guerdon.integrations.trl.pipeline.scoring import Scoring
from guerdon.integrations.trl.pipeline.split_vllm_client import SplittingClient
from guerdon.integrations.trl.reward_funcs import arrange, dispatchers_of, weigh
from guerdon.integrations.trl.tool_calls.concurrent_calls import SideBySide
from guerdon.integrations.trl.trainer_context import TRLTrainerContext


class GRPOTrainer(SideBySide, trl.GRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """``trl.GRPOTrainer`` whose reward functions run on Guerdon.

    Takes all that TRL's takes, by the same names and in the same order. Each reward function may be what TRL knows
    (a function of its batch contract, a reward model or its name), a decorated function, a `guerdon.StatefulReward`, or a
    `Dispatcher` or its columns; `reward_funcs` may be a dispatcher itself. A dispatcher's weights hold where
    ``args.reward_weights`` is None; where it is the whole list, others than its own are refused at the first batch.
    Functions that belong to no dispatcher get one of the trainer's own.

    Args:
        pipeline: What goes on while rewards are computed: a `Pipeline`, or ``"off"``, ``"overlap"``, ``"mini_batch"``,
            ``"one_step"`` or ``"all"``.

    Attributes:
        pipeline: The `Pipeline`.
        dispatchers: The dispatchers behind the reward functions, the trainer's own last. Those that were given are the
            caller's to close; the trainer's own ends with it.

    Raises:
        RegistrationError: A reward function can't work, or the pipeline can't with this trainer; the message says why.
    """

    _buffered_inputs: Any  # TRL's: the pieces of the batch that is trained on

    def __init__(
        self, model: Any, reward_funcs: Any = None, *rest: Any, pipeline: Pipeline | str = "off", **named: Any
    ) -> None:
        self.pipeline = Pipeline.of(pipeline)
        self._flights: deque[Flight] = deque()  # generated ahead, oldest first
        self._flight: Flight | None = None  # the one that is trained on
        self._launching: Flight | None = None  # the one that TRL's function generates now
        self._replaying: Replay | None = None  # what TRL's function is replayed for now
        self._reader = Reader()
        self._launched = 0
        self._later: torch.Tensor | None = None  # the random numbers to go on with after TRL's shuffle
        functions, weights, self._own = arrange(reward_funcs)
        super().__init__(model, functions, *rest, **named)
        if self.args.reward_weights is None and weights is not None:
            weigh(self.reward_weights, weights)
        self.dispatchers: tuple[Dispatcher, ...] = dispatchers_of(self.reward_funcs)
        if any(dispatcher.closed for dispatcher in self.dispatchers):
            raise RegistrationError(
                "a dispatcher in reward_funcs is closed: make a new one, or close it after the training."
            )
        check(self.pipeline, self, self.dispatchers)
        if self.pipeline.overlap and self.use_vllm and self.accelerator.is_main_process:
            self.vllm_generation.vllm_client = SplittingClient(self.vllm_generation.vllm_client)

    # --- the loop

    def _inner_training_loop(self, *args: Any, **named: Any) -> Any:
        self._reader = Reader()
        self._launched = 0
        try:
            return super()._inner_training_loop(*args, **named)
        finally:
            self._abandon()

    def _run_epoch(self, *args: Any, **named: Any) -> Any:
        self._reader.epoch = named["epoch"]
        return super()._run_epoch(*args, **named)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        if not self.pipeline.lookahead:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        left = trainer_logs.batches_left(self.state, self.args, self.callback_handler.train_dataloader)
        batches, follows = self._reader.hand_out(epoch_iterator, num_batches, left)
        if not follows:  # the loop left an epoch early: what was generated for its rest is not trained on
            self._abandon()
        return super().get_batch_samples(iter(batches), len(batches), device)

    def training_step(self, *args: Any, **named: Any) -> Any:
        loss = super().training_step(*args, **named)
        self._reader.trained()
        return loss

    def _abandon(self) -> None:
        """Gives up what was not trained on (G-4)."""
        for flight in (*self._flights, *filter(None, (self._flight, self._launching))):
            flight.cancel()
        self._flights.clear()
        self._flight = self._launching = None
        if self.pipeline.defers:
            self._buffered_inputs = None

    # --- a batch

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not self.model.training or not self.pipeline.mini_batch:
            prepared = super()._prepare_inputs(generation_batch)
            if self._later is not None:
                torch.set_rng_state(self._later)
                self._later = None
            return prepared
        if self._step % self._cycle == 0 or self._buffered_inputs is None:
            self._buffered_inputs = MiniBatches(self, self._next_flight(generation_batch))
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if not self.pipeline.defers:
            flight = self._flight = self._new_flight(inputs)
            self._launching = flight
            try:
                output = super()._generate_and_score_completions(inputs)
            finally:
                self._launching = None
            self._log_flight(flight)
            return output
        flight = self._next_flight(inputs)
        self.record_generation(flight)
        self.settle(self.scoring_of(flight))
        output = {**flight.output, "advantages": self.replay(flight, range(len(flight.prompts)), record=True)}
        if flight.generator is not None:
            self._later = torch.get_rng_state()
            torch.set_rng_state(flight.generator)
        return output

    @property
    def _cycle(self) -> int:
        """Micro-steps on one generated batch."""
        return int(self.args.steps_per_generation * self.num_iterations)

    def _next_flight(self, batch: Any) -> Flight:
        """The batch generated from these rows, after those ahead of it were generated too."""
        flight = self._flights.popleft() if self._flights else None
        self._flight = flight
        if flight is not None and flight.batch is not batch:
            raise GuerdonError(
                "the trainer asks for another batch than the one that was generated ahead: the loop of this version of "
                "transformers reads its data in a way that lookahead does not know. Use pipeline='mini_batch' or 'off'."
            )
        if flight is None:
            flight = self._flight = self._launch(batch)
        into = self._step % self._cycle  # not 0 only where the loop left an epoch in the middle of a batch
        for ahead in range(len(self._flights) + 1, self.pipeline.lookahead + 1):
            upcoming = self._reader.peek(ahead * self._cycle - into, self.callback_handler.train_dataloader)
            if upcoming is None:
                break
            self._flights.append(self._launch(upcoming))
        flight.in_flight = sum(self.scoring_of(one).open_groups() for one in (flight, *self._flights))
        return flight

    def _new_flight(self, batch: Any) -> Flight:
        flight = Flight(batch, self.state.global_step, self._launched)
        self._launched += 1
        return flight

    def _launch(self, batch: Any) -> Flight:
        """Generates a batch and begins its rewards; its books stay its own."""
        flight = self._launching = self._new_flight(batch)
        values = dict(flight.books)
        if self.pipeline.lookahead:  # makes TRL compute the log-probabilities of the policy that generates (G-3)
            values["num_iterations"] = self.args.gradient_accumulation_steps + 1
        tokens = self.state.num_input_tokens_seen
        try:
            with replaced(self, values):
                flight.output = super()._generate_and_score_completions(batch)
        except BaseException:
            flight.cancel()
            raise
        finally:
            self._launching = None
            flight.tokens = self.state.num_input_tokens_seen - tokens
            self.state.num_input_tokens_seen = tokens
        flight.generator = torch.get_rng_state()
        torch.randperm(len(batch))  # what TRL's shuffle draws: what follows is as random as without a pipeline
        return flight

    def replay(self, flight: Flight, rows: Any, *, record: bool) -> Any:
        """Advantages of some rows of a batch, by TRL's own function, from rewards that are complete.

        Args:
            rows: Rows of this rank, whole groups; on every rank as many.
            record: Whether what the function logs is logged; else it leaves no trace.

        Returns:
            A tensor with one advantage per row.
        """
        self._replaying = Replay(flight, list(rows))
        neutral: dict[str, Any] = {
            "use_vllm": False,
            "beta": 0.0,
            "environment_factories": None,
            "environments": None,
            "tools": [],
        }
        books = {} if record else empty_books()
        try:
            with replaced(self, {**neutral, **books}):
                inputs = [{"prompt": prompt} for prompt in self._replaying.pick(flight.prompts)]
                advantages = super()._generate_and_score_completions(inputs)["advantages"]
        finally:
            self._replaying = None
        if record:
            self._log_flight(flight)
        return advantages

    def record_generation(self, flight: Flight) -> None:
        """Logs what of a batch is known before its rewards (F-1)."""
        self.state.num_input_tokens_seen += flight.tokens
        trainer_logs.record(self, flight)

    def _log_flight(self, flight: Flight) -> None:
        """Logs how the pipeline did with a batch whose rewards are complete."""
        scoring = self.scoring_of(flight)
        figures = trainer_logs.figures(flight, scoring, step=self.state.global_step, newest=self._launched)
        trainer_logs.log(self, figures)

    @staticmethod
    def scoring_of(flight: Flight) -> Scoring:
        if flight.scoring is None:
            raise GuerdonError(
                "TRL's trainer generated a batch without asking for its rewards: this version of trl does so in another "
                "way than this trainer knows. Use guerdon with trl.GRPOTrainer and list(dispatcher)."
            )
        return flight.scoring

    # --- what TRL's function calls

    def _generate(self, prompts: Any) -> Any:
        if self._replaying is None:
            flight = self._launching
            if flight is not None and self.pipeline.overlap and self._exchange(len(prompts)) is None:
                flight.scoring = self._new_scoring(len(prompts))
                flight.early = Early(self, flight.scoring, flight.batch, prompts, self._common)
            return super()._generate(prompts)
        count = len(prompts)
        token = [[self._tokenizer.eos_token_id]] * count
        return token, token, None, self._replaying.pick(self._replaying.flight.completions), None, {}, None, []

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **named: Any) -> Any:
        early = None if self._launching is None else self._launching.early
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
                self.scoring_of(replay.flight), replay.rows, replay.pick(replay.flight.inputs), prompts, completions
            )
        flight = self._launching
        if flight is not None:
            flight.inputs, flight.prompts, flight.completions = inputs, prompts, completions
            flight.born = time.monotonic()
        scoring = self._new_scoring(len(prompts))
        try:
            scoring = self._begin(scoring, inputs, prompts, completions, completion_ids_list)
            waiting = self._other_rewards(scoring, inputs, prompts, completions, completion_ids_list)
            if flight is not None and self.pipeline.defers:
                return waiting
            if flight is not None:
                flight.in_flight = scoring.open_groups()
            self.settle(scoring)
        except BaseException:
            scoring.cancel()
            raise
        return self._finished(scoring, range(len(prompts)), inputs, prompts, completions)

    @property
    def _group_size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    def _new_scoring(self, rows: int) -> Scoring:
        return Scoring(self.reward_funcs, rows, self._group_size, self._exchange(rows))

    def _exchange(self, rows: int) -> Exchange | None:
        """The exchange of rows with other ranks, where a function works on groups and groups lie on several ranks."""
        ranks, size = self.accelerator.num_processes, self._group_size
        if ranks == 1 or rows % size == 0 or self.environments is not None:
            return None
        if all(dispatcher.group_function is None for dispatcher in self.dispatchers):
            return None
        return Exchange(self.accelerator.process_index, ranks, rows, size, TRLTrainerContext(TrainerMemory(), self))

    def settle(self, scoring: Scoring) -> None:
        """Waits until the rewards of a batch are complete; what functions recorded is then in TRL's books."""
        scoring.settle()
        if (
            scoring.exchanges
        ):  # a rank that scored nothing recorded nothing: TRL would think it lacks values for its rows
            for column in set(gather_object(list(self._pending_extra_logs))):
                self._pending_extra_logs.setdefault(column, [])

    @property
    def _common(self) -> dict[str, Any]:
        """What TRL gives reward functions beside the batch."""
        return {
            "trainer_state": self.state,
            "log_extra": self._log_completion_extra,
            "log_metric": self._log_metric,
        }

    def _begin(self, scoring: Scoring, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> Scoring:
        """Starts the rewards of a batch, on all ranks or on none (G-5).

        Returns:
            The scoring, or the one that began while the batch was generated.
        """
        flight = self._launching
        early = None if flight is None else flight.early
        error: Exception | None = None
        try:
            if early is not None and early.finish(completions, completion_ids):
                scoring = early.scoring
            else:
                if early is not None:
                    early.scoring.cancel()
                if flight is not None:
                    flight.scoring = scoring
                whole = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
                live = {} if self.environments is None else {"environments": self.environments}
                scoring.begin({**columns_of(inputs), **whole, **self._common, **live})
        except Exception as refused:
            error = refused
        agreed = TRLTrainerContext(TrainerMemory(), self).agree(error, None)
        if agreed is not None:
            raise agreed from None
        return scoring

    def _other_rewards(
        self, scoring: Scoring, inputs: Any, prompts: Any, completions: Any, completion_ids: Any
    ) -> torch.Tensor:
        """Runs what the trainer runs itself, while the rest is computed; the rewards of all ranks, 0 for the rest."""
        count = len(prompts)
        if not scoring.others:
            return torch.zeros(
                count * self.accelerator.num_processes, len(self.reward_funcs), device=self.accelerator.device
            )
        functions = list(self.reward_funcs)
        for place in set(range(len(functions))) - set(scoring.others):
            functions[place] = _zeros
        with replaced(self, {"reward_funcs": functions}):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        first = self.accelerator.process_index * count
        scoring.take_others(rewards[first : first + count].cpu().numpy())
        return rewards

    def _finished(self, scoring: Scoring, rows: Any, inputs: Any, prompts: Any, completions: Any) -> torch.Tensor:
        """The rewards of all ranks for some rows of each, once they are complete."""
        with replaced(self, {"reward_funcs": scoring.columns(list(rows))}):
            return super()._calculate_rewards(inputs, prompts, completions, [[]] * len(prompts))


def _zeros(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)
