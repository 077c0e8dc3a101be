"""A function with its contract and policy: what ``reward`` and ``group_reward`` make.

- It stays callable as the plain function, with the same result.
- It pickles by reference where importing finds it again, else with its options.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from guerdon._functions.build import build
from guerdon._functions.callables import find_attribute
from guerdon._functions.options import Options
from guerdon._functions.spec import FunctionSpec, Shape
from guerdon._functions.stateful import StatefulReward
from guerdon._functions.votes import votes_of, with_votes
from guerdon.errors import RegistrationError

__all__ = ["RewardFunction"]

P = ParamSpec("P")
R = TypeVar("R")


class RewardFunction(Generic[P, R]):
    """A function with its contract and policy: made by `reward` and `group_reward`, called like the
    function itself.

    Attributes:
        spec: Its contract and policy, with every default filled in; for the dispatcher.
        options: What it was given.
    """

    __guerdon_decorated__ = True
    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R] | StatefulReward, options: Options, shape: Shape) -> None:
        if isinstance(function, RewardFunction):
            raise RegistrationError(
                f"reward function {function.name!r} is decorated already: give all options in one place. To give a "
                f"library's function other ones, take the plain function: reward({function.name}.__wrapped__, …)."
            )
        spec = build(function, options, shape, decorated=True)
        votes = votes_of(spec.name, options.votes)
        self.spec: FunctionSpec = spec if votes.count == 1 else with_votes(spec, votes)
        self.options = options
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]  # a StatefulReward instance is not callable
        if not isinstance(getattr(self, "__name__", None), str):
            self.__name__ = self.spec.name

    @property
    def __guerdon_target__(self) -> Callable[..., Any] | StatefulReward:
        """The object that a worker runs in place of this one."""
        return self.spec.target

    @property
    def name(self) -> str:
        """Its name in metrics, files and messages."""
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        spec, target = self.spec, self.spec.target
        of_lists = (
            spec.rowwise or spec.shape == "batch" or spec.batch_size is not None or "trainer_state" in spec.wants.named
        )
        if "completions" in kwargs and "trainer_state" in kwargs and not of_lists:
            raise TypeError(
                f"reward function {spec.name!r} scores one {spec.shape}, but a trainer called it with a whole batch: "
                f"make dispatcher = Dispatcher([{spec.name}]) and pass dispatcher.reward_funcs as reward_funcs."
            )
        function: Callable[P, R] = getattr(target, "score") if isinstance(target, StatefulReward) else target  # noqa: B009 - a subclass defines it
        return function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> RewardFunction[..., R]:
        """A decorated method of an instance is a reward function bound to it."""
        if instance is None or isinstance(self.spec.target, StatefulReward):
            return self
        return RewardFunction(MethodType(self.spec.target, instance), self.options, self.spec.shape)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles it by reference if importing finds this very object."""
        qualname = getattr(self, "__qualname__", "")
        found = find_attribute(sys.modules.get(getattr(self, "__module__", "")), qualname)
        return qualname if found is self else super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        spec = self.spec
        return f"<reward function {spec.name!r}: {spec.shape}, {spec.lane} lane, {spec.policy.timeout_text}>"
