"""An argument of a trainer's ``__init__``, wherever a class on the way to TRL's takes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any


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
