"""Values for a trainer's arguments, and for a while for its attributes; the base of mixins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from guerdon.errors import GuerdonError
from guerdon.integrations.trl import trl_version

if TYPE_CHECKING:
    Mixin: Any  # has what a class of TRL has, which is not typed
else:
    Mixin = object


@contextmanager
def patched(target: object, values: Mapping[str, Any]) -> Iterator[None]:
    """Sets attributes of `target`, methods too, and puts the earlier values back at the end."""
    try:
        before = {name: getattr(target, name) for name in values}
    except AttributeError as error:
        raise GuerdonError(
            f"{type(target).__name__} has no {error.name}, for which Guerdon's own trainers set another value for a while: "
            f"{trl_version.advice()}"
        ) from error
    own = set(vars(target))
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if name in own or name not in vars(target):  # a property has no entry
                setattr(target, name, value)
            else:  # its class has it
                delattr(target, name)


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
    for init in (vars(one)["__init__"] for one in kind.__mro__ if "__init__" in vars(one)):
        parameters = list(inspect.signature(init).parameters.values())[1:]
        places = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
        if name in places[: len(args)]:
            place = places.index(name)
            return (*args[:place], change(args[place]), *args[place + 1 :]), dict(named)
        if name in places or not any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
            break  # not given, or a different signature
    return args, dict(named)
