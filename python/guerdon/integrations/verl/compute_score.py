"""verl's ``compute_score(data_source, solution_str, ground_truth, extra_info)`` as a reward
function.

Workers import this module: it imports nothing of verl.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from guerdon.functions import RewardFunction, reward


def as_reward(
    function: Callable[..., Any], fixed: Mapping[str, Any], options: Mapping[str, Any]
) -> RewardFunction[..., Any]:
    """The reward function that calls `function` once per response as verl would.

    Args:
        function: Sync or async; returns a number or a dict with ``"score"``.
        fixed: Further keyword arguments of every call.
        options: Those of `guerdon.reward`.

    Raises:
        RegistrationError: An option is wrong.
    """
    calls = _AsyncCalls if inspect.iscoroutinefunction(function) else _Calls
    given: dict[str, Any] = {"name": getattr(function, "__name__", "compute_score"), **options}
    return reward(calls(function, fixed), **given)


class _Calls:
    """Calls a sync function; the parameters are the columns that it gets."""

    def __init__(self, function: Callable[..., Any], fixed: Mapping[str, Any]) -> None:
        self._function = function
        self._fixed = dict(fixed)

    def __call__(self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any) -> Any:
        return self._function(
            data_source=data_source,
            solution_str=solution_str,
            ground_truth=ground_truth,
            extra_info=extra_info,
            **self._fixed,
        )


class _AsyncCalls(_Calls):
    """The same for an async one."""

    async def __call__(self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any) -> Any:
        return await super().__call__(data_source, solution_str, ground_truth, extra_info)
