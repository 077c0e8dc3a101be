"""A trainer's list of reward functions, made into columns of dispatchers and what the trainer runs.

The order of the list stays, so that names, weights and processing classes keep their places.
Functions that belong to no dispatcher share one, made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from guerdon._batch.trainer.column import RewardColumn
from guerdon._functions.callables import is_reward_model
from guerdon._functions.function_list import spread
from guerdon.dispatcher import Dispatcher
from guerdon.errors import RegistrationError


def resolve_reward_funcs(given: Any, *, weigh: bool = False) -> tuple[list[Any], list[float] | None, Dispatcher | None]:
    """The list for TRL, its weights as given to dispatchers, and the dispatcher made for the rest.

    Args:
        given: What a trainer was given as its reward functions: one, a list, a dispatcher, or None.
        weigh: Whether the dispatcher made here has the weights, for a trainer that has none.

    Returns:
        The list; one weight per entry, None if no dispatcher in it was given any; the dispatcher
        for functions that belong to none, None if there are none.

    Raises:
        RegistrationError: A function can't work.
    """
    entries = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    functions: list[Any] = []
    weights: list[float] = []
    weighted = False
    for entry in entries:
        if isinstance(entry, Dispatcher):
            functions.extend(entry.reward_funcs)
            weights.extend(entry.reward_weights)
            weighted = weighted or entry.options["weights"] is not None
        else:
            columns, given_weights = spread([entry], None)
            functions.extend(columns)
            weights.extend(given_weights or [1.0] * len(columns))
            weighted = weighted or given_weights is not None
    plain = [
        index for index, one in enumerate(functions) if not isinstance(one, RewardColumn) and not is_reward_model(one)
    ]
    own_weights = [weights[index] for index in plain] if weigh else None
    own = Dispatcher([functions[index] for index in plain], weights=own_weights) if plain else None
    for index, column in zip(plain, own.reward_funcs if own else (), strict=True):
        functions[index] = column
    return functions, weights if weighted else None, own


def dispatcher_of(column: RewardColumn) -> Dispatcher:
    """The dispatcher whose column it is."""
    owner = column.dispatcher
    assert isinstance(owner, Dispatcher)  # nothing else makes columns
    return owner


def dispatchers_of(functions: Iterable[object]) -> tuple[Dispatcher, ...]:
    """The dispatchers whose columns are in a trainer's list, each once, in order."""
    owners = [dispatcher_of(one) for one in functions if isinstance(one, RewardColumn)]
    return tuple({id(owner): owner for owner in owners}.values())


def check_group_sizes(dispatchers: Iterable[Dispatcher], sizes: Mapping[str, int]) -> None:
    """Compares groups before hours of training show that they differ.

    Args:
        sizes: The trainer's completions per prompt, by the names of its settings.

    Raises:
        RegistrationError: A dispatcher was given another number.
    """
    for dispatcher in dispatchers:
        own = dispatcher.options["num_generations"]
        for name, size in sizes.items():
            if own not in (None, size):
                raise RegistrationError(
                    f"the dispatcher has num_generations={own}, the trainer {name}={size}: leave it out of the dispatcher, so "
                    "that the trainer's own holds, in evaluation too."
                )
