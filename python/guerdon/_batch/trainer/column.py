"""Reward columns: the functions of a dispatcher, in the shape that TRL's trainers call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from guerdon._functions.callables import is_reward_model
from guerdon._functions.function_list import model_name

Collect = Callable[[int, Mapping[str, Any]], list[float | None]]

_OWN = ("prompts", "completions", "completion_ids")


class Owner(Protocol):
    """The part of a dispatcher that its columns use."""

    @property
    def reward_funcs(self) -> list[Any]: ...


@dataclass(frozen=True, eq=False)
class RewardList:
    """The part of a dispatcher's list that trainers need.

    Attributes:
        length: Number of entries, reward models included.
        models: Names of the reward models among them.
        model_places: Their places.
        weights: One per entry; None if the dispatcher was given none.
    """

    length: int
    models: tuple[str, ...]
    model_places: tuple[int, ...]
    weights: list[float] | None

    @classmethod
    def of(cls, items: Sequence[object], weights: list[float] | None) -> RewardList:
        """Makes the list of a dispatcher's items, in which a rubric is replaced by its columns."""
        places = tuple(place for place, item in enumerate(items) if is_reward_model(item))
        return cls(len(items), tuple(model_name(items[place]) for place in places), places, weights)

    def place_of(self, function: object) -> int | None:
        """The place of a trainer's function in this list, None for one that is not a column of
        it."""
        if isinstance(function, RewardColumn) and function.rewards is self:
            return function.index
        return None


class RewardColumn:
    """One entry of `Dispatcher.reward_funcs`, called once per batch with lists (TRL's batch
    contract).

    Attributes:
        dispatcher: The one whose list it is in.
        rewards: That list.
        index: Its place in it.
    """

    __name__: str
    # Not in `__dict__`: that belongs to the dispatcher, so attributes set on a column outlive it,
    # and holding the dispatcher there would be a circle that only Python's collector could end.
    __slots__ = ("__dict__", "__weakref__", "_collect", "dispatcher", "rewards")

    def __init__(
        self,
        dispatcher: Owner,
        rewards: RewardList,
        collect: Collect,
        index: int,
        function: int,
        name: str,
        attributes: dict[str, Any],
    ) -> None:
        self.__dict__ = attributes
        self.dispatcher = dispatcher
        self.rewards = rewards
        self._collect = collect
        self.index = index
        self._function = function
        if "__name__" not in attributes:
            self.__name__ = self.__qualname__ = name

    def __call__(self, /, *lists: Any, **columns: Any) -> list[float | None]:
        """Returns one reward per sample, None for samples without one.

        Args:
            *lists: ``prompts, completions, completion_ids``, where they aren't named. One list
                alone is the completions, as in ms-swift's calls.
            **columns: All others, by name.

        Raises:
            DataError: The batch can't be scored as it is.
            RewardFailureError: A function failed on more samples than allowed; from the first
                column called with a batch.
            TypeError: More than three lists, or one of them is named too.
        """
        given = self._by_name(lists, columns)
        given.update((name, values) for name, values in columns.items() if name not in _OWN or values is not None)
        if "completions" not in given and "environments" in given:
            # a reward that reads its environment alone, as TRL's own columns of `get_reward` do
            given["completions"] = [""] * len(given["environments"])
        return self._collect(self._function, given)

    def _by_name(self, lists: tuple[Any, ...], columns: Mapping[str, Any]) -> dict[str, Any]:
        """The lists given without a name, by name."""
        names = ("completions",) if len(lists) == 1 and "completions" not in columns else _OWN
        if len(lists) > len(names):
            raise TypeError(
                f"{self.__name__}() takes prompts, completions and completion_ids without a name, and got {len(lists)} "
                "lists: name the others, as in column(prompts, completions, answer=answers)."
            )
        given = dict(zip(names, lists, strict=False))
        twice = [name for name in given if name in columns]
        if twice:
            raise TypeError(f"{self.__name__}() got {twice[0]} twice: as a list without a name, and by name.")
        return {name: values for name, values in given.items() if values is not None}

    def __reduce__(self) -> tuple[Callable[[Any, int], Any], tuple[Owner, int]]:
        return _column_of, (self.dispatcher, self.index)

    def __repr__(self) -> str:
        return f"<reward column {self.__name__!r}>"


@lru_cache(maxsize=256)
def column_class(name: str) -> type[RewardColumn]:
    """The class for the column of a function of this name: ms-swift logs a callable under the name
    of its class, where TRL takes its ``__name__``."""
    # Not importable, and needn't be: a column is pickled by its place in a dispatcher.
    return type(name, (RewardColumn,), {"__slots__": (), "__doc__": RewardColumn.__doc__})


def _column_of(dispatcher: Owner, index: int) -> object:
    return dispatcher.reward_funcs[index]
