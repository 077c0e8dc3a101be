"""The list that a dispatcher is made of: what may stand in it, and what its functions must agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from guerdon._registration.spec import FunctionSpec
from guerdon.errors import RegistrationError
from guerdon.limits import Limit


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


def repeated_names(specs: Iterable[FunctionSpec]) -> None:
    """Refuse a list in which two functions have one name: metrics and columns could not be told apart.

    Raises:
        RegistrationError: With the name and the places of both.
    """
    places: dict[str, int] = {}
    for place, spec in enumerate(specs):
        first = places.setdefault(spec.name, place)
        if first != place:
            raise RegistrationError(
                f"two reward functions are called {spec.name!r} (number {first} and {place} of the list). "
                "Give one of them another name: reward(fn, name=…)."
            )


def agreed_limits(specs: Iterable[FunctionSpec]) -> list[FunctionSpec]:
    """The functions with what their keys' limits are, wherever one of them gave it (L-2 of `guerdon.limits`).

    Raises:
        RegistrationError: Two functions give other numbers for one key.
    """
    specs = list(specs)
    known: dict[str, tuple[str, Limit]] = {}
    for spec in specs:
        limit = spec.policy.limit
        if limit is None or limit.key is None:
            continue
        if limit.rpm is None and limit.tpm is None and limit.concurrency is None:
            continue
        other, first = known.setdefault(limit.key, (spec.name, limit))
        if (limit.rpm, limit.tpm, limit.concurrency) != (first.rpm, first.tpm, first.concurrency):
            raise RegistrationError(
                f"reward functions {other!r} and {spec.name!r} give other limits for the key {limit.key!r}: {first} and "
                f"{limit}. Give both the same; a function may also give the key alone."
            )

    def with_numbers(spec: FunctionSpec) -> FunctionSpec:
        limit = spec.policy.limit
        if limit is None or limit.key not in known:
            return spec
        _, first = known[limit.key]
        whole = replace(limit, rpm=first.rpm, tpm=first.tpm, concurrency=first.concurrency)
        return replace(spec, policy=replace(spec.policy, limit=whole))

    return [with_numbers(spec) for spec in specs]
