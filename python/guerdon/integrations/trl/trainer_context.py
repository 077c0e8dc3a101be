"""TRL's trainers, unmodified, as the columns of a dispatcher meet them: by the arguments of a call.

Nothing here imports trl or torch. The trainer is the owner of the bound ``log_extra`` and
``log_metric`` that it gives its reward functions; one that gives none is found in the call stack.
Ranks agree before one of them raises, so that all raise the same error or none does and no rank
waits in a collective for one that has left; only where the trainer's own collectives run, on the
main thread or on one that runs the trainer.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from guerdon._batch.trainer.call_stack import owners_of_reward_funcs, running_codes, runs_method_of
from guerdon._batch.trainer.context import TrainerContext, TrainerMemory, report_failures
from guerdon.errors import DataError, GuerdonError, RewardFailureError

if TYPE_CHECKING:
    from guerdon._batch.failures import BatchFailures
    from guerdon._batch.trainer.column import RewardList
    from guerdon._batch.trainer.metrics import LogMetrics
    from guerdon.results import RewardBatch


# TRL's name of the samples that it leaves out of a group's baseline (since 1.6).
_MASK = "unscorable_mask"


class RankReport(NamedTuple):
    """Report of a rank on a batch for the other ranks."""

    error: tuple[type[Exception], str] | None
    failures: BatchFailures | None


class TRLTrainerContext(TrainerContext):
    """One of TRL's trainers."""

    known = True

    def __init__(self, memory: TrainerMemory, trainer: Any) -> None:
        super().__init__(memory)
        self._trainer = trainer

    def group_size(self) -> int | None:
        """Completions per prompt: the training value while the model trains, else that of
        evaluation."""
        trainer = self._trainer
        size = trainer.num_generations
        if not getattr(getattr(trainer, "model", None), "training", True):
            size = getattr(trainer, "num_generations_eval", None) or size
        return int(size)

    @property
    def ranks(self) -> int:
        dist = _distributed()
        return 1 if dist is None else int(dist.get_world_size())

    def other_functions(self, rewards: RewardList) -> list[str]:
        """Reward models, other functions, environments' own rewards."""
        trainer = self._trainer
        names = getattr(trainer, "reward_func_names", [type(one).__name__ for one in trainer.reward_funcs])
        pairs = zip(trainer.reward_funcs, names, strict=False)
        return [name for one, name in pairs if rewards.place_of(one) is None]

    def check_weights(self, rewards: RewardList) -> None:
        """Compares the weights, once a trainer.

        Raises:
            DataError: The dispatcher was given weights and the trainer sums with others.
        """
        trainer, given = self._trainer, rewards.weights
        if self.memory.weights_checked:
            return
        functions, theirs = getattr(trainer, "reward_funcs", None), getattr(trainer, "reward_weights", None)
        if given is not None and theirs is not None and _just_these(functions, rewards):
            import numpy as np

            weights = [float(weight) for weight in theirs]
            if not np.array_equal(np.asarray(weights, np.float32), np.asarray(given, np.float32)):
                raise DataError(
                    f"the trainer has reward_weights={weights}, the dispatcher weights={given}. "
                    "Pass reward_weights=dispatcher.reward_weights to the trainer's config, or give the dispatcher no weights."
                )
        self.memory.weights_checked = True

    def counts_failures(self) -> str | None:
        kind = type(self._trainer)
        # Columns may be called on threads that run nothing of the trainer.
        codes = running_codes() if runs_method_of(kind) else _codes_of(kind)
        if any(_MASK in code.co_varnames for code in codes):
            return None
        version = getattr(sys.modules.get("trl"), "__version__", None)
        return f"{kind.__module__}.{kind.__qualname__}{'' if version is None else f' (trl {version})'}"

    def exchange(
        self, error: Exception | None, failures: BatchFailures | None, result: RewardBatch | None
    ) -> tuple[Exception | None, list[BatchFailures | None]]:
        """Does as in `TrainerContext`; the error is that of the first rank that has one.
        Collective."""
        dist = _distributed()
        if dist is None or not self._runs_here():
            return error, [failures]
        # A class that every rank has, and that takes just a message.
        common = type(error) if isinstance(error, GuerdonError) else GuerdonError
        mine = RankReport(None if error is None else (common, str(error)), failures)
        every: list[RankReport] = [mine] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        for rank, one in enumerate(every):
            if one.error is not None:
                kind, message = one.error
                text = f"rank {rank}: {message}"
                return (RewardFailureError(text, result) if kind is RewardFailureError else kind(text)), []
        return None, [one.failures for one in every]

    def _runs_here(self) -> bool:
        """Returns whether this is the thread in which the trainer's collectives run."""
        return threading.current_thread() is threading.main_thread() or runs_method_of(type(self._trainer))


class SilentTrainerContext(TRLTrainerContext):
    """A trainer that gives its reward functions nothing of itself: TRL before 1.0, some of its
    experimental trainers, trainers built on TRL."""

    def group_size(self) -> int | None:
        """Known of GRPO and RLOO, whose groups are contiguous."""
        grouped = any(kind.__name__.endswith(("GRPOTrainer", "RLOOTrainer")) for kind in type(self._trainer).__mro__)
        return super().group_size() if grouped and hasattr(self._trainer, "num_generations") else None

    def log(self, result: RewardBatch, arguments: Mapping[str, Any], metrics: LogMetrics) -> None:
        super().log(result, arguments, metrics)
        report_failures(result, self.memory.reported)

    def _runs_here(self) -> bool:
        # Each rank of TRL's own trainers calls its functions.
        ours = any(
            owner is self._trainer and module.partition(".")[0] == "trl" for owner, module in owners_of_reward_funcs()
        )
        return ours and super()._runs_here()


@contextmanager
def raised_together(trainer: Any) -> Iterator[None]:
    """Raises, at the end, on all ranks the error of the first rank that has one. Collective."""
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    agreed = TRLTrainerContext(TrainerMemory(), trainer).agree(error, None)
    if agreed is not None:
        raise agreed from None


def trainer_of(given: Mapping[str, Any]) -> tuple[type[TRLTrainerContext], Any] | None:
    """Returns the trainer behind a call with these arguments, if it is one of TRL's, or built on
    one."""
    for name in ("log_extra", "log_metric"):
        trainer = getattr(given.get(name), "__self__", None)
        if trainer is not None and hasattr(trainer, "num_generations") and hasattr(trainer, "reward_funcs"):
            return TRLTrainerContext, trainer
    for owner, _ in owners_of_reward_funcs():
        if isinstance(getattr(owner, "reward_funcs", None), (list, tuple)) and hasattr(owner, "args"):
            return SilentTrainerContext, owner
    return None


def leaves_failures_out() -> bool:
    """Returns whether a caller without a trainer leaves samples without rewards out: the rollout
    process of TRL's asynchronous trainer does, which calls functions in threads."""
    processes: Any = sys.modules.get("multiprocessing")
    child = processes is not None and processes.parent_process() is not None
    return child and "trl.experimental.async_grpo.async_rollout_worker" in sys.modules


def _codes_of(kind: type) -> Iterator[CodeType]:
    """The code of all methods of a class."""
    for base in kind.__mro__:
        for method in vars(base).values():
            code = getattr(inspect.unwrap(method) if inspect.isfunction(method) else None, "__code__", None)
            if code is not None:
                yield code


def _just_these(functions: Any, rewards: RewardList) -> bool:
    """Returns whether the trainer's functions are just the dispatcher's, models that it loaded
    apart."""
    if not isinstance(functions, list) or len(functions) != rewards.length:
        return False
    places = enumerate(map(rewards.place_of, functions))
    return all(found == place if place not in rewards.model_places else found is None for place, found in places)


def _distributed() -> Any:
    """torch.distributed, if more than one process runs in it; never imports it."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    return dist
