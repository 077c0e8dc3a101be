"""TRL's asynchronous GRPO trainer with rewards that don't hold it up, and `concurrent_groups=`.

All that TRL's trainer takes goes on to it. Our parts are put on its own instance afterwards: the
class of the rollout loop and its arguments, and the worker's `start`, `stop` and `check_health`.
"""

from __future__ import annotations

import functools
import inspect
import secrets
from typing import Any

from accelerate.utils import broadcast_object_list
from trl.experimental.async_grpo import AsyncGRPOTrainer as TRLAsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker

from guerdon._batch.trainer.column import RewardColumn
from guerdon._engine import dispatcher_options
from guerdon._functions.callables import is_reward_model
from guerdon.errors import GuerdonError, RegistrationError
from guerdon.integrations.trl.async_grpo.rollout_loop import LoopOptions, RolloutLoop, make_loop
from guerdon.integrations.trl.async_grpo.rollout_process import health_check, start_and_read, stop_and_drain
from guerdon.integrations.trl.reward_funcs import (
    check_group_sizes,
    dispatcher_of,
    dispatchers_of,
    resolve_reward_funcs,
)


class AsyncGRPOTrainer(TRLAsyncGRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """``trl.experimental.async_grpo.AsyncGRPOTrainer`` whose reward functions run on Guerdon.

    Takes all that TRL's takes, by the same names and in the same order. Each reward function may be
    a function of TRL's batch contract, a decorated function, a `guerdon.StatefulReward`, or a
    `Dispatcher` or its columns; `reward_funcs` may be a dispatcher itself. A dispatcher's weights
    hold: this trainer's config has none. The functions run in the rollout process, in which a copy
    of the dispatcher is made. If a ``rollout_worker=`` derived from TRL's, as its harness worker
    is, is given, they score the samples that its loop generates, beside the rewards of this loop.

    Args:
        concurrent_groups: Groups that are scored at the same time, 1 or more.

    Raises:
        RegistrationError: A reward function can't work here; the message says why.
    """

    _lora_name: str  # TRL's: what adapters are called, less their version

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        *rest: Any,
        concurrent_groups: int = 16,
        **named: Any,
    ) -> None:
        groups = dispatcher_options.whole("concurrent_groups", concurrent_groups)
        if groups is None:
            raise RegistrationError("concurrent_groups=None: expected a whole number of at least 1.")
        given = inspect.signature(TRLAsyncGRPOTrainer.__init__).bind_partial(None, model, [], args, *rest, **named)
        reward_funcs = _with_workers_own(reward_funcs, given.arguments.get("rollout_worker"))
        self.concurrent_groups: int = groups
        functions, _, self._own_dispatcher = resolve_reward_funcs(reward_funcs, weigh=True)
        columns = _checked(functions)
        super().__init__(model, [], args, *rest, **named)
        self._began = False
        # On every rank: if one raised alone, the others would wait for it.
        check_group_sizes(dispatchers_of(columns), {"num_generations": self.args.num_generations})
        # A server that served another run still holds its adapters, and would answer with them: the
        # name gets a part that is this run's, the same on every rank.
        if self._lora_sync:
            (run,) = broadcast_object_list([secrets.token_hex(4)], from_process=0)
            self._lora_name = f"{self._lora_name}-{run}"
        if isinstance(self.rollout_worker, AsyncRolloutWorker):
            self._extend(self.rollout_worker, columns)

    def _extend(self, worker: Any, columns: tuple[RewardColumn, ...]) -> None:
        """Makes TRL's worker run our loop, over the worker's own where it has one."""
        own = worker._loop_cls
        worker._loop_cls = RolloutLoop if issubclass(RolloutLoop, own) else functools.partial(make_loop, own)
        if self._lora_sync:
            worker._loop_kwargs["lora_name"] = self._lora_name
        worker._loop_kwargs["guerdon"] = LoopOptions(
            columns=columns,
            concurrent_groups=self.concurrent_groups,
            max_staleness=self.args.max_staleness,
        )
        worker.check_health = health_check(worker)
        worker.stop = stop_and_drain(worker)
        worker.start = start_and_read(worker)

    def _inner_training_loop(self, *args: Any, **named: Any) -> Any:
        # TRL starts its rollout process at the first `train`; a second would wait for it forever.
        if self._began:
            raise GuerdonError(
                "this trainer has trained already, and TRL's asynchronous trainer trains once: make a new one. Its "
                "train(resume_from_checkpoint=...) goes on from what this one saved."
            )
        self._began = True
        return super()._inner_training_loop(*args, **named)


def _with_workers_own(reward_funcs: Any, worker: Any) -> Any:
    """The reward functions of a trainer that was given a worker, which may have some itself.

    Raises:
        RegistrationError: Both have, or the worker can't score with any.
    """
    if worker is None:
        return reward_funcs
    given = not (reward_funcs is None or reward_funcs == [])
    if not isinstance(worker, AsyncRolloutWorker):
        if given:
            raise RegistrationError(
                f"rollout_worker= is a {type(worker).__name__}, which scores by itself: leave reward_funcs out, or derive the "
                "worker from trl.experimental.async_grpo.AsyncRolloutWorker, whose samples reward_funcs score."
            )
        return None
    own = worker._loop_kwargs.get("reward_funcs")
    if given and own:
        raise RegistrationError(
            "reward_funcs were given to the trainer and to its rollout_worker: give them to one of the two."
        )
    return reward_funcs if given else own


def _checked(functions: list[Any]) -> tuple[RewardColumn, ...]:
    """The columns, if all can work in the rollout process.

    Raises:
        RegistrationError: One can't.
    """
    models = [entry for entry in functions if is_reward_model(entry)]
    if models:
        raise RegistrationError(
            f"TRL's asynchronous trainer runs no reward models, and reward_funcs has {len(models)}: call the model in a "
            "reward function, or use the synchronous trainer."
        )
    names: set[str] = set()
    for column in functions:
        spec = next(spec for spec in dispatcher_of(column)._specs if spec.name == column.__name__)
        if "trainer_state" in spec.wants.required:
            raise RegistrationError(
                f"reward function {spec.name!r} asks for `trainer_state`, which the rollout process doesn't have: give the "
                "parameter a default, or remove it."
            )
        if column.__name__ in names:
            raise RegistrationError(
                f"two reward functions are named {column.__name__!r}: give one of them another name=."
            )
        names.add(column.__name__)
    return tuple(functions)
