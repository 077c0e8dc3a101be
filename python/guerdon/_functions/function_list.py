"""The list of a dispatcher: what may be in it, and what its functions must agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError
from guerdon.limits import Limit


def checked_items(functions: object, dispatcher: type, column: type) -> tuple[object, ...]:
    """The items of the list; `dispatcher` and `column` are the classes of items to refuse.

    Raises:
        RegistrationError: It is not a list, or an item belongs to another dispatcher.
    """
    if isinstance(functions, dispatcher):
        raise RegistrationError("this is a Dispatcher already. Pass its functions, not the dispatcher.")
    if isinstance(functions, (str, bytes, Mapping)) or not isinstance(functions, Iterable):
        raise RegistrationError(
            f"expected a list of reward functions, as in Dispatcher([function]), not a {type(functions).__name__}."
        )
    items = tuple(functions)
    if not items:
        raise RegistrationError("the list of reward functions is empty.")
    for item in items:
        if isinstance(item, dispatcher):
            raise RegistrationError("one of the functions is a Dispatcher. Pass its functions, not the dispatcher.")
        if isinstance(item, column):
            raise RegistrationError(f"{item!r} belongs to a dispatcher already. Pass the function itself.")
    return items


def spread(items: Iterable[object], weights: Sequence[float] | None) -> tuple[tuple[object, ...], list[float] | None]:
    """The items, a rubric's columns in its place, and one weight for each; None if all are 1.

    Args:
        weights: One per entry of the list, None without any.
    """
    columns: list[object] = []
    spread_weights: list[float] = []
    for place, item in enumerate(items):
        own, factor = getattr(item, "columns", None), 1.0 if weights is None else weights[place]
        if getattr(type(item), "__guerdon_columns__", False) and own is not None:
            columns += own
            spread_weights += [factor * weight for weight in getattr(item, "weights", ())]
        else:
            columns.append(item)
            spread_weights.append(factor)
    plain = weights is None and all(weight == 1.0 for weight in spread_weights)
    return tuple(columns), None if plain else spread_weights


def model_name(item: object) -> str:
    """The name of a reward model in messages."""
    if isinstance(item, str):
        return item
    config = getattr(item, "config", None)
    return str(getattr(config, "_name_or_path", None) or type(item).__name__)


def refuse_loops_of_two_kinds(specs: Iterable[FunctionSpec]) -> None:
    """Refuse an event loop of which some functions stay in this process and others may leave it:
    they would not share it.

    Raises:
        RegistrationError: With the loop and two functions.
    """
    first: dict[str, FunctionSpec] = {}
    for spec in specs:
        if spec.loop is not None and first.setdefault(spec.loop, spec).node != spec.node:
            raise RegistrationError(
                f"reward functions {first[spec.loop].name!r} and {spec.name!r} share the event loop {spec.loop!r}, but only one of "
                "them has node='any'. Give it to both or to none, or give them different loops."
            )


def refuse_repeated_names(specs: Iterable[FunctionSpec]) -> None:
    """Refuse two functions with one name: their metrics and columns would be indistinguishable.

    Raises:
        RegistrationError: With the name and both positions.
    """
    positions: dict[str, int] = {}
    for position, spec in enumerate(specs):
        first = positions.setdefault(spec.name, position)
        if first != position:
            renamed = "reward(fn, name=…)" if spec.factory is None else f"{spec.factory.name}(name=…)"
            raise RegistrationError(
                f"two reward functions are called {spec.name!r} (items {first} and {position} of the list). "
                f"Give one of them another name: {renamed}."
            )


def merge_limits(specs: Iterable[FunctionSpec]) -> list[FunctionSpec]:
    """Returns the functions, each with the numbers of its limit's key, which any of them may give.

    Raises:
        RegistrationError: Two functions give different numbers for one key.
    """
    specs = list(specs)
    known: dict[str, tuple[str, Limit]] = {}
    for spec in (asked for each in specs for asked in _limited(each)):
        limit = spec.policy.limit
        if limit is None or limit.key is None:
            continue
        if limit.rpm is None and limit.tpm is None and limit.concurrency is None:
            continue
        other, first = known.setdefault(limit.key, (spec.name, limit))
        if (limit.rpm, limit.tpm, limit.concurrency) != (first.rpm, first.tpm, first.concurrency):
            raise RegistrationError(
                f"reward functions {other!r} and {spec.name!r} give different limits for the key {limit.key!r}: {first} and "
                f"{limit}. Give both the same numbers; one of them may give the key alone."
            )

    def with_numbers(spec: FunctionSpec) -> Limit | None:
        limit = spec.policy.limit
        if limit is None or limit.key not in known:
            return limit
        _, first = known[limit.key]
        return replace(limit, rpm=first.rpm, tpm=first.tpm, concurrency=first.concurrency)

    return change_limits(specs, with_numbers)


def change_limits(specs: Iterable[FunctionSpec], change: Callable[[FunctionSpec], Limit | None]) -> list[FunctionSpec]:
    """Returns the functions, and the members of panels, with the limits that `change` returns;
    unchanged if the limits are the same."""

    def changed(spec: FunctionSpec) -> FunctionSpec:
        if spec.composition is not None:
            new_members = tuple(changed(member) for member in spec.composition.members)
            if new_members != spec.composition.members:
                spec = replace(spec, composition=replace(spec.composition, members=new_members))
        limit = change(spec)
        if limit is spec.policy.limit:
            return spec
        return replace(spec, policy=replace(spec.policy, limit=limit))

    return [changed(spec) for spec in specs]


def _limited(spec: FunctionSpec) -> Iterable[FunctionSpec]:
    """Whose limits hold for a function's calls: its own, or those of its members."""
    return (spec,) if spec.composition is None else spec.called


def refuse_impossible_conditions(specs: Sequence[FunctionSpec]) -> None:
    """Refuse gates that can't work between these functions.

    Raises:
        RegistrationError: With the names.
    """
    known = {spec.name: spec for spec in specs}
    for spec in specs:
        for condition in spec.run_if.conditions if spec.run_if is not None else ():
            source = known.get(condition.source)
            if source is None:
                names = ", ".join(map(repr, known))
                raise RegistrationError(
                    f"reward function {spec.name!r}: run_if names {condition.source!r}, which is no function of this "
                    f"dispatcher: {names}."
                )
            if source.shape != "sample":
                raise RegistrationError(
                    f"reward function {spec.name!r}: run_if names {source.name!r}, which scores {_whole(source)} at once, so "
                    "there is no score of one sample to wait for. Name a function of single samples, or make it one: "
                    f"{_instead(source)}."
                )
            if spec.shape != "sample":
                raise RegistrationError(
                    f"reward function {spec.name!r} scores {_whole(spec)} at once, so run_if can't skip samples of it. Make it "
                    f"one of single samples: {_instead(spec)}."
                )
    _refuse_cycles(known)


def _whole(spec: FunctionSpec) -> str:
    return "a whole group" if spec.shape == "group" else "a whole batch"


def _instead(spec: FunctionSpec) -> str:
    return "@reward, with finish_group of a StatefulReward" if spec.shape == "group" else "reward(…, rowwise=True)"


def _refuse_cycles(known: Mapping[str, FunctionSpec]) -> None:
    sources = {
        name: list(dict.fromkeys(one.source for one in spec.run_if.conditions)) if spec.run_if is not None else []
        for name, spec in known.items()
    }
    decided: set[str] = set()
    while fresh := {name for name, of in sources.items() if name not in decided and decided.issuperset(of)}:
        decided |= fresh
    stuck = next((name for name in sources if name not in decided), None)
    if stuck is None:
        return
    chain = [stuck]
    while True:
        following = next(name for name in sources[chain[-1]] if name not in decided)
        if following in chain:
            cycle = [*chain[chain.index(following) :], following]
            raise RegistrationError(
                f"the run_if of these reward functions wait for each other, so none of them could run: "
                f"{' -> '.join(map(repr, cycle))}. Leave one of the conditions out."
            )
        chain.append(following)
