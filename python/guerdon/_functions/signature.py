"""Values that a reward function takes, from its signature.

- A parameter is a reserved name of the contract or a dataset column; nothing else is passed, except
  to ``**row``. Arguments that a partial fixed are not passed.
- A signature that no batch can satisfy is refused here, never at the first call.
- Arguments are passed by position only if that means the same as by keyword.

``SAMPLE_NAMES``, ``GROUP_NAMES`` and ``BATCH_NAMES`` list the reserved names of each contract.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Final, Literal

from guerdon._functions.callables import code_mentions
from guerdon.errors import RegistrationError

__all__ = [
    "BATCH_NAMES",
    "GROUP_NAMES",
    "RECORDERS",
    "SAMPLE_NAMES",
    "Contract",
    "Shape",
    "Wants",
    "inspect_finish",
    "inspect_wants",
    "names_environments",
    "parameter_names",
]

Shape = Literal["sample", "group", "batch"]
Contract = Literal["sample", "group", "batch", "gathered"]
"""Form of a function's calls; ``"gathered"``: samples of any groups, as lists under group names."""

# ``text`` is the last assistant message as plain text.
SAMPLE_NAMES: Final = ("prompt", "completion", "completion_ids", "text", "environment", "trainer_state")
# Lists of the group's length, except ``trainer_state``.
GROUP_NAMES: Final = ("prompts", "completions", "completion_ids", "texts", "environments", "trainer_state")
# Lists of the batch's length, as in TRL.
BATCH_NAMES: Final = ("prompts", "completions", "completion_ids", "environments", "trainer_state")
RECORDERS: Final = ("log_extra", "log_metric")

_RESERVED: Final = {"sample": SAMPLE_NAMES, "group": GROUP_NAMES, "batch": BATCH_NAMES, "gathered": GROUP_NAMES}
_CALLED: Final = {
    "group": "is called once per group",
    "batch": "undecorated functions get lists, as from TRL",
    "gathered": "batch_size= has it called with lists",
}
_PLURAL: Final = {"prompt": "prompts", "completion": "completions"}
_SINGULAR: Final = {"prompts": "prompt", "completions": "completion", "environments": "environment"}


@dataclass(frozen=True)
class Wants:
    """Values of one call of a function, as far as its signature defines them.

    Attributes:
        required: Parameters without a default, in order, except ``log_extra`` and ``log_metric``.
        optional: Parameters with a default, in order; each gets its value if there is one.
        row: It has a ``**row``: it also gets the dataset columns that no parameter names.
        positional: ``required + optional`` can go by position.
        records: Which of ``log_extra`` and ``log_metric`` it gets, by keyword.
        everything: TRL's batch contract with ``**kwargs``: it gets all that TRL passes.
        fixed: Names that a partial has set; ``**row`` doesn't get them.
        reserved: Names of the contract for values that are not dataset columns.
        texts: Those annotated as ``str``.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    row: bool = False
    positional: bool = False
    records: tuple[str, ...] = ()
    everything: bool = False
    fixed: tuple[str, ...] = ()
    reserved: tuple[str, ...] = SAMPLE_NAMES
    texts: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """All parameters that take a value, required ones first."""
        return self.required + self.optional

    def missing(self, available: Collection[str]) -> tuple[str, ...]:
        """The required names that `available` (columns and reserved values of a batch) lacks."""
        return tuple(name for name in self.required if name not in available)

    def arrange(self, available: Iterable[str]) -> tuple[tuple[str, ...], bool]:
        """The names of one batch's calls, in order, and whether the values go by position.

        Args:
            available: Every name that the batch has a value for: columns and reserved values.

        Returns: ``(names, by_position)``. By keyword if an earlier value is missing or ``**row`` is
            used.
        """
        order = tuple(available)
        present = frozenset(order)
        names = tuple(name for name in self.named if name in present)
        if self.everything:
            return names + tuple(name for name in order if name not in names and name not in RECORDERS), False
        if self.row:
            closed = frozenset((*self.named, *self.fixed, *self.reserved, *RECORDERS))
            return names + tuple(name for name in order if name not in closed), False
        return names, self.positional and names == self.named[: len(names)]


def parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters of its signature; none of one that can't be read."""
    try:
        return frozenset(_signature(function, "sample").parameters) - frozenset(_fixed(function))
    except (ValueError, TypeError):
        return frozenset()


def inspect_wants(function: Callable[..., Any], name: str, shape: Contract) -> Wants:
    """Read the signature of `function` under the contract of `shape`.

    Args:
        function: Any callable that is not a class; for a stateful reward its bound ``score``.
        name: Its name in errors.
        shape: ``"batch"`` is TRL's contract, also of a rowwise function.

    Raises:
        RegistrationError: No signature can be read, or no batch can satisfy it.
    """
    return _read(_parameters(function, name, shape), _fixed(function), name, shape)


def inspect_finish(function: Callable[..., Any], name: str) -> Wants:
    """Read the signature of a bound ``finish_group(scores, **columns)``."""
    parameters = _parameters(function, f"{name}.finish_group", "group")
    if not parameters or parameters[0].kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        raise RegistrationError(
            f"reward function {name!r}: finish_group must take the group's scores as its first argument: "
            "def finish_group(self, scores, **columns)."
        )
    wants = _read(parameters[1:], (), f"{name}.finish_group", "group")
    if wants.records:
        raise RegistrationError(
            f"reward function {name!r}: finish_group can't take {' or '.join(wants.records)}. Record in score() "
            "instead, or return a dict with extra fields from there."
        )
    return wants


def _read(parameters: list[Parameter], fixed: tuple[str, ...], name: str, shape: Contract) -> Wants:
    data = [
        p
        for p in parameters
        if p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) and p.name not in RECORDERS
    ]
    row = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    everything = row and shape == "batch"
    _refuse(parameters, name, shape)
    records = tuple(p.name for p in parameters if p.name in RECORDERS and p.name not in fixed)
    asked = [p for p in data if p.name not in fixed]
    wants = Wants(
        required=tuple(p.name for p in asked if p.default is Parameter.empty),
        optional=tuple(p.name for p in asked if p.default is not Parameter.empty),
        row=row,
        positional=shape == "sample" and not row and _by_position(parameters, asked),
        records=RECORDERS if everything else records,
        everything=everything,
        fixed=fixed,
        reserved=_RESERVED[shape],
        texts=tuple(p.name for p in asked if p.annotation in (str, "str")),
    )
    only = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_ONLY]
    if only and not (wants.positional and len(wants.optional) <= 1):
        raise RegistrationError(
            f"reward function {name!r}: {', '.join(only)} can only be passed by position, but other parameters need "
            "names. Remove the '/' from its signature, or wrap it in a def that has none."
        )
    return wants


def _by_position(parameters: list[Parameter], asked: list[Parameter]) -> bool:
    """Returns whether the parameters in `asked` come first, so that positions mean just them."""
    return parameters[: len(asked)] == asked and all(p.kind is not Parameter.KEYWORD_ONLY for p in asked)


def _refuse(parameters: list[Parameter], name: str, shape: Contract) -> None:
    """Refuse what no batch can satisfy."""
    if shape == "batch":
        if not parameters:
            raise RegistrationError(
                f"reward function {name!r} takes no arguments. An undecorated function is called as TRL calls it, "
                "f(prompts=…, completions=…, **columns); decorate it with @reward to have it called per sample."
            )
    elif rest := [p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL]:
        raise RegistrationError(
            f"reward function {name!r} takes *{rest[0]}, which names no column. Name the columns that it needs, or "
            "take **row; if it is a wrapper, use functools.wraps."
        )
    for p in parameters:
        if p.kind is Parameter.POSITIONAL_ONLY and p.name in RECORDERS:
            raise RegistrationError(
                f"reward function {name!r}: {p.name} is passed by keyword. Remove the '/' behind it."
            )
        if p.default is not Parameter.empty or p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        if shape == "sample" and p.name in _SINGULAR:
            raise RegistrationError(
                f"reward function {name!r} wants {p.name!r}, but is called once per sample: use {_SINGULAR[p.name]!r}. "
                "For a function of lists: @group_reward (one group at a time), no decorator (TRL's batch contract), or "
                "reward(fn, rowwise=True) if its rows are independent."
            )
        if shape != "sample" and p.name in _PLURAL:
            otherwise = "leave batch_size out" if shape == "gathered" else "decorate it with @reward"
            raise RegistrationError(
                f"reward function {name!r} wants {p.name!r}, but {_CALLED[shape]}: use {_PLURAL[p.name]!r}, or {otherwise} "
                "to have it called once per sample."
            )


def _parameters(function: Callable[..., Any], name: str, shape: Contract) -> list[Parameter]:
    try:
        signature = _signature(function, shape)
    except (ValueError, TypeError) as error:
        raise RegistrationError(
            f"reward function {name!r}: its signature can't be read ({error}), so Guerdon can't know which columns it "
            "wants. Wrap it in a def or lambda that names them: reward(lambda completion: fn(completion), name=…)."
        ) from error
    return list(signature.parameters.values())


def _signature(function: Callable[..., Any], shape: Contract) -> inspect.Signature:
    """The signature that calls must fit.

    A wrapper's own parameters count, unless it passes ``*args`` or ``**kwargs`` on
    (functools.wraps): then those of the wrapped function. Under TRL's contract ``**kwargs`` gets
    everything, as from TRL.
    """
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # a C wrapper (functools.lru_cache) has no signature
        return inspect.signature(function)
    kinds = {p.kind for p in own.parameters.values()}
    if Parameter.VAR_KEYWORD in kinds:
        if shape == "batch":
            return own
    elif Parameter.VAR_POSITIONAL not in kinds:
        return own
    inspect.unwrap(function)  # raises on a cycle of wrappers
    if inspect.isfunction(function) and callable(wrapped := getattr(function, "__wrapped__", None)):
        return _signature(wrapped, shape)
    return inspect.signature(function)


def _fixed(function: Callable[..., Any]) -> tuple[str, ...]:
    if not isinstance(function, functools.partial):
        return ()
    inner = inspect.signature(function.func).parameters.values()
    named = [p.name for p in inner if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    by_position = named[: max(0, len(function.args) - sum(p.kind is Parameter.POSITIONAL_ONLY for p in inner))]
    return tuple(dict.fromkeys((*_fixed(function.func), *by_position, *function.keywords)))


def names_environments(function: Callable[..., Any], wants: Wants, shape: Contract) -> bool:
    """Returns whether it takes live environments, which can't leave the process.

    Parameters of a wrapped function count too, and names read from ``**kwargs``.
    """
    live = "environment" if shape == "sample" else "environments"
    if live in wants.named or live in wants.fixed:
        return live in wants.named
    if wants.everything and code_mentions(function, live):
        return True
    try:
        return live in inspect.signature(function).parameters
    except ValueError:  # it wraps a C function
        return False
