"""TRL's asynchronous GRPO trainer with rewards that don't hold it up: the same class, and `concurrent_groups=`.

- T-1  All that TRL's trainer takes goes on to it; what is ours is put on its own instance afterwards: the class of the
       rollout loop and its arguments, the worker's `start`, `stop` and `check_health`, and its queue's `get`.
- T-2  Every request to the server has the bounds of `VLLMCalls`, the trainer's and the loop's.
- T-3  The server is not left paused by a transfer that failed.
- T-4  An error of the rollout process is raised as what it is, in the trainer.
- T-5  Stopping waits neither for a process that waits to be read nor for one that is gone; nor does reading wait for the
       rest of a message that a process was killed in the middle of.
- T-6  No other run's adapter has a name of this run's: a server that has served another run holds its adapters still, and
       would answer with them.
- T-7  A checkpoint goes on behind groups that were dropped, as the run itself does.
- T-8  It trains once: TRL's starts its rollout process at the first `train`, and a second one would wait for samples that
       nobody makes.
"""

from __future__ import annotations

import inspect
import queue
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from accelerate.utils import broadcast_object_list
from trl.experimental.async_grpo import AsyncGRPOTrainer as TRLAsyncGRPOTrainer

from guerdon import _options, errors
from guerdon._registration.callables import is_reward_model
from guerdon._trainer.column import RewardColumn
from guerdon.errors import GuerdonError, RegistrationError
from guerdon.integrations.trl.async_grpo.checkpoint_progress import Arrivals
from guerdon.integrations.trl.async_grpo.rollout_loop import LoopOptions, RolloutLoop
from guerdon.integrations.trl.async_grpo.vllm_calls import VLLMCalls
from guerdon.integrations.trl.async_grpo.vllm_client import Client
from guerdon.integrations.trl.pipeline.generated_batch import replaced
from guerdon.integrations.trl.reward_funcs import arrange, dispatcher_of, dispatchers_of

_ENDS_S: Final = 15.0
_GONE_S: Final = 0.1  # between looks at a queue that nobody writes to


class AsyncGRPOTrainer(TRLAsyncGRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """``trl.experimental.async_grpo.AsyncGRPOTrainer`` whose reward functions run on Guerdon, for many groups at once.

    Takes all that TRL's takes, by the same names and in the same order. Each reward function may be a function of TRL's
    batch contract, a decorated function, a `guerdon.StatefulReward`, or a `Dispatcher` or its columns; `reward_funcs` may be a
    dispatcher itself. A dispatcher's weights hold: this trainer's config has none. The functions run in the rollout
    process, in which a copy of the dispatcher is made.

    Args:
        concurrent_groups: Groups that are scored at the same time, 1 or more.
        vllm: How the vLLM server is called: time-outs, tries, how long it may be away.

    Raises:
        RegistrationError: A reward function can't work here; the message says why.
        VLLMServerError: The server can't be asked what it is.
    """

    _lora_name: str  # TRL's: what adapters are called, less their version
    _trained_groups: set[int]  # TRL's

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        *rest: Any,
        concurrent_groups: int = 16,
        vllm: VLLMCalls | None = None,
        **named: Any,
    ) -> None:
        groups = _options.whole("concurrent_groups", concurrent_groups)
        if groups is None:
            raise RegistrationError("concurrent_groups=None: expected a whole number of at least 1.")
        if vllm is not None and not isinstance(vllm, VLLMCalls):
            raise RegistrationError(f"vllm={vllm!r}: expected a VLLMCalls, as in VLLMCalls(retries=2).")
        given = inspect.signature(TRLAsyncGRPOTrainer.__init__).bind_partial(None, model, [], args, *rest, **named)
        if given.arguments.get("rollout_worker") is not None:
            raise RegistrationError(
                "rollout_worker= brings its own way to score, which this trainer is there for: use TRL's trainer with it."
            )
        self.concurrent_groups: int = groups
        self.vllm_calls = VLLMCalls() if vllm is None else vllm
        functions, _, self._own = arrange(reward_funcs)
        columns = _checked(functions)
        super().__init__(model, [], args, *rest, **named)
        self._arrivals = Arrivals(self.args.max_staleness)
        self._began = False
        _check_groups(columns, self.args.num_generations)  # on every rank: one alone would leave the others waiting
        if self._lora_sync:  # T-6; the same on every rank
            (run,) = broadcast_object_list([secrets.token_hex(4)], from_process=0)
            self._lora_name = f"{self._lora_name}-{run}"
        if self.rollout_worker is not None:
            self._extend(self.rollout_worker, columns)

    @property
    def vllm_client(self) -> Any:
        """TRL's client of the server, with the bounds of `VLLMCalls` (T-2)."""
        return self._client

    @vllm_client.setter
    def vllm_client(self, client: Any) -> None:
        self._client = None if client is None else Client(client.server_url, client.server_timeout, self.vllm_calls)

    def _extend(self, worker: Any, columns: tuple[RewardColumn, ...]) -> None:
        """Makes TRL's worker run our loop (T-1)."""
        worker._loop_cls = RolloutLoop
        if self._lora_sync:
            worker._loop_kwargs["lora_name"] = self._lora_name
        worker._loop_kwargs["guerdon"] = LoopOptions(
            columns=columns,
            concurrent_groups=self.concurrent_groups,
            calls=self.vllm_calls,
            adapters=self._lora_dir if self._lora_sync else None,
            max_staleness=self.args.max_staleness,
        )
        worker.check_health = _telling(worker)
        worker.stop = _ending(worker)
        worker.start = _severing(worker, self._note)

    def _note(self, sample: Any) -> None:
        self._arrivals.note(sample.group_id, sample.model_version, self.model_version)

    def _inner_training_loop(self, *args: Any, **named: Any) -> Any:
        if self._began:  # T-8
            raise GuerdonError(
                "this trainer has trained already, and TRL's asynchronous trainer can't do it twice: make another one; "
                "train(resume_from_checkpoint=...) goes on from what this one saved."
            )
        self._began = True
        return super()._inner_training_loop(*args, **named)

    def _save_checkpoint(self, *args: Any, **named: Any) -> None:
        trained = self._trained_groups | self._arrivals.gone(self.model_version)
        with replaced(self, {"_trained_groups": trained}):  # T-7
            super()._save_checkpoint(*args, **named)

    def _sync_weight(self) -> None:
        try:
            super()._sync_weight()
        except BaseException:
            if self.vllm_client is not None:  # T-3
                self.vllm_client.unfreeze()
            raise


def _checked(functions: list[Any]) -> tuple[RewardColumn, ...]:
    """The columns, if all can work in the rollout process.

    Raises:
        RegistrationError: One can't.
    """
    models = [entry for entry in functions if is_reward_model(entry)]
    if models:
        raise RegistrationError(
            f"TRL's asynchronous trainer runs no reward models, and the list has {len(models)}: score with one behind a "
            "reward function, or use the synchronous trainer."
        )
    names: set[str] = set()
    for column in functions:
        spec = next(spec for spec in dispatcher_of(column).specs if spec.name == column.__name__)
        if "trainer_state" in spec.wants.required:
            raise RegistrationError(
                f"reward function {spec.name!r} asks for `trainer_state`, which the rollout process doesn't have: give the "
                "parameter a default, or take it out."
            )
        if column.__name__ in names:
            raise RegistrationError(f"two reward functions are called {column.__name__!r}: give one another name=.")
        names.add(column.__name__)
    return tuple(functions)


def _check_groups(columns: tuple[RewardColumn, ...], generations: int) -> None:
    for dispatcher in dispatchers_of(columns):
        own = dispatcher.options["num_generations"]
        if own is not None and own != generations:
            raise RegistrationError(
                f"the dispatcher was given num_generations={own}, the trainer's config {generations}: leave it out there."
            )


def _telling(worker: Any) -> Callable[[float], None]:
    """TRL's health check of `worker`, with errors of ours as what they were in the rollout process (T-4), and told at
    once of a process that is gone without a word."""
    check = worker.check_health

    def check_health(stale_after_s: float) -> None:
        process = worker._process
        if process is not None and not process.is_alive() and not worker._failed_event.is_set():
            raise GuerdonError(
                f"the rollout process ended (exit code {process.exitcode}) without an error of its own: it was killed, for "
                "its memory perhaps, or crashed. Look at what it printed last."
            )
        try:
            check(stale_after_s)
        except RuntimeError as error:
            name, _, text = str(error.__cause__ or "").partition(": ")
            kind = getattr(errors, name, None)
            if isinstance(kind, type) and issubclass(kind, GuerdonError):
                raise kind(text.partition("\nTraceback")[0]) from error
            raise

    return check_health


def _severing(worker: Any, note: Callable[[Any], None]) -> Callable[[], None]:
    """TRL's `start` of `worker`, after which only the rollout process can write to the buffer: as long as this one can too,
    who reads half a message of a process that was killed waits for the other half forever (T-5). `note` is told of each
    sample that is read."""
    start, buffer = worker.start, worker.rollout_buffer
    get = buffer.get

    def read(block: bool = True, timeout: float | None = None) -> Any:
        try:
            sample = get(block, timeout)
        except (EOFError, OSError):  # nobody writes any more; the health check says why
            time.sleep(min(_GONE_S, timeout or _GONE_S))
            raise queue.Empty from None
        note(sample)
        return sample

    def begin() -> None:
        start()
        buffer._writer.close()
        buffer.get = read

    return begin


def _ending(worker: Any) -> Callable[[], None]:
    """TRL's `stop` of `worker`, while its queue is read: a process ends only when what it has put there is taken (T-5).

    A process that has failed is not told to stop: telling waits for a thread of it to hear, which may never be.
    """
    stop = worker.stop

    def end() -> None:
        process = worker._process
        ended = threading.Event()

        def drain() -> None:
            while not ended.is_set():
                try:
                    worker.rollout_buffer.get(timeout=0.1)
                except queue.Empty:
                    continue

        reader = threading.Thread(target=drain, name="guerdon-drain", daemon=True)
        reader.start()
        try:
            if process is not None and worker._failed_event.is_set():
                process.join(_ENDS_S)
                if process.is_alive():
                    process.kill()
                    process.join(_ENDS_S)
            if process is not None and not process.is_alive():
                worker._process = None
            stop()
        finally:
            ended.set()
            reader.join(_ENDS_S)

    return end
