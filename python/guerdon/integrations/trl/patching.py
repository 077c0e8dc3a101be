"""Other values for the arguments of a trainer, and for a while for its attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter
from typing import Any

from guerdon.errors import GuerdonError
from guerdon.integrations.trl import trl_version


@contextmanager
def patched(target: object, values: Mapping[str, Any]) -> Iterator[None]:
    """Sets attributes of `target`, and puts the earlier values back at the end."""
    try:
        before = {name: getattr(target, name) for name in values}
    except AttributeError as error:
        raise GuerdonError(
            f"{type(target).__name__} has no {error.name}, for which Guerdon's own trainers set another value for a while: "
            f"{trl_version.advice()}"
        ) from error
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)


def replace_argument(
    kind: type, name: str, args: tuple[Any, ...], named: Mapping[str, Any], change: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with one of them changed, given by position, by name or inside ``**named``.

    Args:
        kind: The class that they are for. Where its ``__init__`` takes ``*args``, the position is
            that of the next class which names the parameter.
    """
    if name in named:
        return args, {**named, name: change(named[name])}
    for one in kind.__mro__:
        if "__init__" not in vars(one):
            continue
        parameters = list(inspect.signature(vars(one)["__init__"]).parameters.values())[1:]
        places = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
        if name in places:
            place = places.index(name)
            if place < len(args):
                return (*args[:place], change(args[place]), *args[place + 1 :]), dict(named)
            break
        if not any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
            break  # a different signature
    return args, dict(named)
