"""TRL's trainers with rewards that don't hold them up: the same classes, and `pipeline=`."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import trl

from guerdon.errors import RegistrationError
from guerdon.integrations.trl.pipeline.options import Pipeline
from guerdon.integrations.trl.pipeline.pipelined import PipelinedTrainer
from guerdon.integrations.trl.pipeline.trl_families import GRPO, Family, family_of
from guerdon.integrations.trl.tool_calls.concurrent_calls import ConcurrentToolCalls


class GRPOTrainer(PipelinedTrainer, ConcurrentToolCalls, trl.GRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """``trl.GRPOTrainer`` whose reward functions run on Guerdon.

    Takes all that TRL's takes, by the same names and in the same order. Each reward function may be
    what TRL knows (a function of its batch contract, a reward model or its name), a decorated
    function, a `guerdon.StatefulReward`, or a `Dispatcher` or its columns; `reward_funcs` may be a
    dispatcher itself. A dispatcher's weights hold where ``args.reward_weights`` is None; where the
    dispatcher is the whole list, weights other than its own are refused when training starts.
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

    _family: ClassVar[Family] = family_of(trl.GRPOTrainer)

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
