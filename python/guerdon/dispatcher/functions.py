"""The functions of a dispatcher, checked one by one and together, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

from guerdon._functions.build import spec_of
from guerdon._functions.callables import is_reward_model
from guerdon._functions.function_list import (
    merge_limits,
    refuse_impossible_conditions,
    refuse_loops_of_two_kinds,
    refuse_repeated_names,
)
from guerdon._functions.serialization.serialized_functions import check_serializable
from guerdon._functions.spec import FunctionSpec, with_members
from guerdon._system.warning import warn
from guerdon.errors import RegistrationError

__all__ = ["checked_specs"]


def checked_specs(items: Iterable[object], max_cost: float | None) -> tuple[FunctionSpec, ...]:
    """The specs of the functions in a list, without reward models.

    Args:
        items: Of the list; a rubric's columns in its place.
        max_cost: What the requests of all of them may cost together.

    Raises:
        RegistrationError: One of them, or they together, can't work.
    """
    specs = tuple(merge_limits(spec_of(item) for item in items if not is_reward_model(item)))
    if not specs:
        raise RegistrationError(
            "only reward models are in this list (a string is a model's name), and those a trainer runs itself: "
            "give the list to the trainer as it is. If a function is meant, pass it itself, not its name."
        )
    refuse_repeated_names(specs)
    refuse_loops_of_two_kinds(with_members(specs))
    refuse_impossible_conditions(specs)
    if max_cost is not None and not any(plan.cost.price for spec in specs for plan in spec.plans):
        raise RegistrationError(f"max_cost={max_cost!r}: none of the functions has a price=, by which it is counted.")
    unbounded = [
        spec.name
        for spec in specs
        if spec.uses_tokens
        and any(plan.cost.price and plan.cost.longest_answer is None for plan in spec.plans)
        and (max_cost is not None or any(plan.cost.max_cost is not None for plan in spec.plans))
    ]
    if unbounded:
        warn(
            f"max_cost= of {', '.join(map(repr, unbounded))} without max_tokens=: requests go one at a time until a cost is known, "
            "and then each may count as four times the largest cost seen. Give max_tokens=, and they go by that."
        )
    if any(spec.cache is not None for spec in specs):
        from guerdon._functions.cache.folders import check_folders  # not by `import guerdon`

        check_folders(specs)
    for spec in with_members(specs):
        check_serializable(spec)
    for spec in specs:
        for plan in spec.plans:
            plan.secret.read(spec.name)
    return specs
