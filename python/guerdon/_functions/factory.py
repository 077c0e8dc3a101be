"""`Factory`: the call that made a reward function which comes with Guerdon, for messages.

Readers of the message can change that call, but not the function's parameters or its exceptions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from guerdon.errors import RegistrationError

__all__ = ["Factory", "nothing_missing", "refuse_uncalled_factory"]


def nothing_missing() -> str | None:
    """The requirement of a function that needs no package."""
    return None


@dataclass(frozen=True)
class Factory:
    """The call that made a reward function.

    Attributes:
        make: What was called: `guerdon.code_reward`, or a name of `guerdon.rewards`.
        given: Its arguments, by name.
        columns: Options that name columns of the dataset, with those columns.
        least_timeout: Seconds that a call may take by itself, however short others were.
        missing: Why it can't do all of its work here, and what to install; None if it can.
    """

    make: Callable[..., Any]
    given: Mapping[str, Any]
    columns: Mapping[str, str]
    least_timeout: float = 0.0
    missing: Callable[[], str | None] = nothing_missing

    @property
    def name(self) -> str:
        """The name of the called factory."""
        return self.make.__name__

    def value(self, option: str) -> Any:
        """Returns the value of an option, given or default."""
        return self.given.get(option, inspect.signature(self.make).parameters[option].default)

    def call(self, **changed: Any) -> str:
        """The call with other options, as one writes it: with the options that differ from the
        defaults."""
        usual = inspect.signature(self.make).parameters
        kept = {
            option: value
            for option, value in self.given.items()
            if option not in changed and not (option in usual and _same(usual[option].default, value))
        }
        return self.short(**kept, **changed)

    def short(self, **options: Any) -> str:
        """The call with these options alone."""
        shown = (
            f"{name}={value:g}" if type(value) is float else f"{name}={_quoted(value)}"
            for name, value in options.items()
        )
        return f"{self.name}({', '.join(shown)})"

    def to_name(self, column: str, dataset: Collection[str]) -> str | None:
        """The call with the name of an existing column in place of the missing `column`; None if no
        option names that."""
        option = next((option for option, named in self.columns.items() if named == column), None)
        if option is None:
            return None
        import difflib

        close = difflib.get_close_matches(column, list(dataset), n=1) or (list(dataset) if len(dataset) == 1 else ["…"])
        return self.short(**{option: close[0]})


def refuse_uncalled_factory(item: object) -> None:
    """Refuses a function of Guerdon that makes reward functions, where a reward function belongs.

    Raises:
        RegistrationError: With the call to write.
    """
    home = getattr(item, "__module__", None)
    if not inspect.isfunction(item) or not isinstance(home, str) or not home.startswith("guerdon."):
        return
    for module in ("guerdon", "guerdon.rewards"):
        names = vars(import_module(module)).get("__all__", ())
        if item.__name__ in names and getattr(import_module(module), item.__name__) is item:
            break
    else:
        return
    needed = [
        p
        for p in inspect.signature(item).parameters.values()
        # A server may replace an address.
        if p.name in ("base_url", "url") or (p.default is p.empty and p.kind is not p.VAR_KEYWORD)
    ]
    shown = ", ".join(f"{p.name}=…" for p in needed)
    if item.__name__ in ("reward", "group_reward"):
        needs, shown = "a decorator", "function"
    else:
        needs = "a factory"
    called = f"{module.removeprefix('guerdon').removeprefix('.')}.{item.__name__}".lstrip(".")
    raise RegistrationError(
        f"{called} is {needs}, not a reward function: call it, {called}({shown}), and put what it returns into the list."
    )


def _quoted(value: Any) -> str:
    made = getattr(getattr(value, "spec", None), "factory", None)
    if isinstance(made, Factory):
        return made.call()
    return (
        f'"{value}"' if isinstance(value, str) and value.isprintable() and not set(value) & set('"\\') else repr(value)
    )


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))
