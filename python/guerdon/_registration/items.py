"""The list that a dispatcher is made of: what may stand in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from guerdon.errors import RegistrationError


def listed(functions: object, dispatcher: type, column: type) -> tuple[object, ...]:
    """What the user put into the list; `dispatcher` and `column` are the classes of what is no function of its own.

    Raises:
        RegistrationError: It is no list, or holds what belongs to another dispatcher.
    """
    if isinstance(functions, dispatcher):
        raise RegistrationError("this is a Dispatcher already: give a new one the functions themselves.")
    if isinstance(functions, (str, bytes, Mapping)) or not isinstance(functions, Iterable):
        raise RegistrationError(
            f"give a list of reward functions, as in Dispatcher([function]), not a {type(functions).__name__}."
        )
    items = tuple(functions)
    if not items:
        raise RegistrationError("the list of reward functions is empty.")
    for item in items:
        if isinstance(item, (dispatcher, column)):
            raise RegistrationError(f"{item!r} belongs to a dispatcher already: give this one the function itself.")
    return items


def model_name(item: object) -> str:
    """What messages call a reward model."""
    if isinstance(item, str):
        return item
    config = getattr(item, "config", None)
    return str(getattr(config, "_name_or_path", None) or type(item).__name__)
