"""``fallback=`` of `guerdon.judge`: a second judge where the first fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guerdon._lanes.http.compound import CompoundPlan, CompoundReward
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon.errors import RegistrationError

__all__ = ["with_fallback"]


def with_fallback(
    judge: HttpReward, made_by: Callable[..., HttpReward], given: dict[str, Any], fallback: object, *, votes: int
) -> CompoundReward:
    """The judge, with another one that is asked where it fails.

    Raises:
        RegistrationError: They can't stand together.
    """
    name, spec = judge.name, judge.spec
    wrong = f"reward function {name!r}: fallback="
    if not isinstance(fallback, HttpReward):
        raise RegistrationError(f"{wrong}{fallback!r}: expected what guerdon.judge or guerdon.http_reward makes.")
    if votes != 1:
        raise RegistrationError(f"{wrong}… with votes={votes}: a judge with a fallback is asked once.")
    if is_given(judge, "pure", True):
        raise RegistrationError(f"{wrong}… with pure=True, which is for calls of a single request.")
    second = fallback.spec
    if second.compound is not None:
        raise RegistrationError(f"{wrong}{fallback!r}: it makes several requests itself. Give a plain judge.")
    if fallback.name == name:
        raise RegistrationError(f"{wrong}{fallback!r}: both are called {name!r}. Give it a name= of its own.")
    policy = second.policy
    for option, is_usual in (
        ("batch_size", second.batch_size is None),
        ("cache", second.cache is None),
        ("pure", not is_given(fallback, "pure", True)),
        ("run_if", second.run_if is None),
        ("total_timeout", policy.total_timeout is None),
        ("on_failure", policy.on_failure == "nan"),
        ("max_failure_rate", policy.max_failure_rate is None),
        ("Limit(tokens=function)", policy.limit is None or not callable(policy.limit.tokens)),
    ):
        if not is_usual:
            raise RegistrationError(f"{wrong}{fallback!r} has {option}, which the first judge's holds for both.")
    plan = CompoundPlan.of("cascade", [(name, judge), (fallback.name, fallback)])
    return CompoundReward(
        (made_by, given),
        name,
        plan,
        spec.policy,
        columns=[column for each in (spec, second) for column in each.wants.required],
        run_if=spec.run_if,
        pure=spec.cache is not None,
        cache=spec.cache,
    )
