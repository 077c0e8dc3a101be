"""A judge or a reward service as an item of a dispatcher's list.

- Wrong options are refused when it is made; a missing key, when a dispatcher is made of it.
- It pickles as the arguments that it was made from, so without a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from guerdon._functions import options as checked
from guerdon._functions.cache_folder import checked_cache
from guerdon._functions.conditions import checked_run_if
from guerdon._functions.options import Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.signature import Wants
from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.http.address import redacted_url
from guerdon._lanes.http.plan import Plan
from guerdon.errors import RegistrationError

__all__ = ["HttpReward", "is_given"]


class HttpReward:
    """A reward function that is a request to a server: made by `guerdon.judge` and
    `guerdon.http_reward`.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    __guerdon_decorated__ = True

    def __init__(self, made: tuple[Callable[..., HttpReward], dict[str, Any]], plan: Plan, options: Options) -> None:
        self._made = made
        name = str(options.name)
        plan.check(name)
        wished = checked.flag_or_none(name, "pure", options.pure)
        cache, pure = checked_cache(name, options.cache, options.cache_version, pure=wished)
        columns = (name for field in plan.fields for name in field.columns)
        required = tuple(dict.fromkeys(columns))
        for live in ("environment", "trainer_state"):
            if live in required:
                raise RegistrationError(
                    f"reward function {name!r}: {live} is an object of this process and can't go into a request. Use columns of the "
                    "dataset, prompt, completion, completion_ids or text."
                )
        self.spec = FunctionSpec(
            name=name,
            item=self,
            target=self,
            lane="http",
            shape="sample",
            policy=checked_policy(name, options, "sample"),
            wants=Wants(required=required),
            is_async=True,
            decorated=True,
            http=plan,
            batch_size=plan.batch_size,
            batch_wait=plan.batch_wait,
            run_if=checked_run_if(name, options.run_if, options.otherwise),
            pure=bool(pure),
            cache=cache,
        )
        self.__name__ = name

    @property
    def name(self) -> str:
        """Its name in metrics, files and messages."""
        return self.spec.name

    def __call__(self, *args: object, **columns: object) -> NoReturn:
        raise TypeError(
            f"{self.name!r} is a request to a server, not a function: only a dispatcher can run it. Pass "
            "Dispatcher([…]).reward_funcs as reward_funcs, or score with Dispatcher([…]).score(…)."
        )

    def __reduce__(self) -> tuple[Callable[..., HttpReward], tuple[Any, ...]]:
        made_by, given = self._made
        return _remade, (made_by, given)

    def _address(self) -> str:
        plan = self.spec.http
        if plan is None:
            return ""
        others = len(plan.fleet.endpoints) - 1
        return redacted_url(plan.url) + (f" and {others} other{'s' if others > 1 else ''}" if others else "")

    def __repr__(self) -> str:
        return f"<reward function {self.name!r}: {self._address()}, {self.spec.policy.timeout_text}>"


def is_given(reward: HttpReward, option: str, value: object) -> bool:
    """Returns whether it was made with this value of an option, rather than by a default."""
    return reward._made[1].get(option) is value


def _remade(made_by: Callable[..., HttpReward], given: dict[str, Any]) -> HttpReward:
    return made_by(**given)
