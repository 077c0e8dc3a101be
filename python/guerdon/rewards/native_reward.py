"""A native reward function as an item of a dispatcher's list, and as a plain function.

- Wrong options are refused when it is made.
- A dispatcher and a plain call give the same values, and end a sample at its timeout.
- It pickles as the arguments that it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from guerdon._batch.columns import COMPLETION_IDS, COMPLETIONS, PROMPTS, TEXT, Data, Single, collect
from guerdon._functions import options as checked
from guerdon._functions.conditions import RunIf, checked_run_if
from guerdon._functions.factory import Factory
from guerdon._functions.options import Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.signature import Wants
from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.native.columns import PLAIN, KernelColumn, texts_of
from guerdon._lanes.native.plan import KernelPlan
from guerdon.errors import DataError, RegistrationError, option_names, unknown_option
from guerdon.rewards.plain_columns import BuiltInReward, given_column

if TYPE_CHECKING:
    from guerdon._native import Kernel

__all__ = ["KernelOptions", "NativeReward", "build", "kernel_spec"]

COMPLETION = KernelColumn("completion", "text")
IDS = KernelColumn("completion_ids", "ids")
TOKENS = KernelColumn("completion_ids", "count")
# Columns of every trainer, by the name under which a function of one sample asks for them.
_OWN = {"prompt": PROMPTS, "completion": COMPLETIONS, "completion_ids": COMPLETION_IDS, "text": TEXT}


class KernelOptions(TypedDict, total=False):
    """Options of `guerdon.reward` that every native reward function takes.

    Attributes:
        name: In metrics, files and messages; unique in a dispatcher. Default: the function's own.
        timeout: Seconds that one sample may take. Default 30; None: no timeout.
        total_timeout: Seconds for the call, queueing included. Default: none.
        on_failure: What a failed cell becomes: ``"nan"``, ``"abstain"``, a number or ``"raise"``.
        max_failure_rate: Share of failed samples above which a batch raises.
        run_if: Score only samples on which these conditions on other functions hold.
        otherwise: What the others get.
    """

    name: str
    timeout: float | None
    total_timeout: float | None
    on_failure: str | float
    max_failure_rate: float | None
    run_if: RunIf | None
    otherwise: float | None


class NativeReward(BuiltInReward):
    """A reward function that the engine runs itself, without Python: made by `guerdon.rewards`.

    It is callable as TRL calls reward functions, ``(prompts, completions, **columns)``, and then
    gives a list with a number, or None, for each completion.
    """

    def __init__(
        self, made: tuple[Callable[..., NativeReward], dict[str, Any]], plan: KernelPlan, options: Options
    ) -> None:
        name = str(options.name)
        self._kernel: Kernel = plan.kernel(name)
        self._plan = plan
        spec = FunctionSpec(
            name=name,
            item=self,
            target=self,
            lane="native",
            shape="sample",
            policy=checked_policy(name, options, "sample"),
            wants=Wants(required=tuple(dict.fromkeys(field.column for field in plan.fields))),
            decorated=True,
            kernel=plan,
            run_if=checked_run_if(name, options.run_if, options.otherwise),
            factory=Factory(*made, _named(made[1], plan)),
        )
        super().__init__(made, spec)

    def __call__(
        self,
        prompts: object = None,
        completions: object = None,
        completion_ids: object = None,
        **columns: object,
    ) -> list[float | None]:
        """The scores of a batch, on this thread and without the interpreter's lock.

        A sample has its timeout, and a signal is answered meanwhile. ``on_failure``, ``run_if``,
        ``total_timeout`` and ``max_failure_rate`` are a dispatcher's: here a sample that fails
        raises.

        Raises:
            DataError: A column is missing, or a sample can't be scored in time.
        """
        data = collect(prompts, completions, completion_ids, columns, singles=True)
        given = [self._texts(field, data) for field in self._plan.fields]
        try:
            return self._kernel.scores(given, self.spec.policy.timeout)
        except ValueError as error:
            if len(error.args) != 2:
                raise
            why, sample = error.args
            raise DataError(f"reward function {self.name!r}: sample {sample}: {why}.") from None

    def _texts(self, field: KernelColumn, data: Data) -> tuple[str, list[object]]:
        values = data.texts if field.form == "text" else self._values(field.column, data)
        made = texts_of(values, field, data.samples)
        if made is not None:
            return made
        return PLAIN, [values.value] * data.samples if isinstance(values, Single) else list(values)

    def _values(self, column: str, data: Data) -> list[object] | Single:
        """A trainer's own column, or one of its dataset, by the rules of a dispatcher."""
        own = _OWN.get(column)
        if column in data.dataset:
            if own is not None:
                raise DataError(
                    f"reward function {self.name!r} asks for {column!r}, a reserved name, and the dataset has a column "
                    f"{column!r} too: ambiguous. Rename the column."
                )
            return given_column(self.spec, column, data)
        if own == TEXT:
            return data.texts
        if own in data.own:
            return data.own[own]
        if own == COMPLETION_IDS:
            raise DataError(f"reward function {self.name!r} scores token ids: give completion_ids= too.")
        if own:
            raise DataError(
                f"reward function {self.name!r} asks for the column {column!r}, which this batch doesn't have. Give {own}= too."
            )
        return given_column(self.spec, column, data)


def build(
    made_by: Callable[..., NativeReward],
    given: Mapping[str, Any],
    fields: tuple[KernelColumn, ...],
    options: Mapping[str, Any],
    **kernel: Any,
) -> NativeReward:
    """Returns the reward function that `made_by` makes of its options.

    Args:
        given: Its arguments, by name, those of `options` among them.
        options: `KernelOptions`.
        kernel: The kernel's own options.

    Raises:
        RegistrationError: An option is wrong.
    """
    usual = made_by.__name__
    unknown = sorted(set(options) - set(KernelOptions.__annotations__))
    if unknown:
        raise unknown_option(usual, unknown[0], (*option_names(made_by), *KernelOptions.__annotations__))
    name = checked.label(usual, "name", options.get("name")) or usual
    for field in fields:
        column: object = field.column
        if not isinstance(column, str) or not column or not _is_whole(column):
            raise RegistrationError(f"reward function {name!r}: column={column!r}: expected the name of a column.")
    try:
        own = {option: repr(value) if isinstance(value, float) else value for option, value in kernel.items()}
        spec = json.dumps({"kernel": usual, **own}, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"reward function {name!r}: an option is no plain value: {error}.") from None
    if not _is_whole(spec):
        raise RegistrationError(f"reward function {name!r}: an option has half a surrogate pair in it: {own!r}.")
    return NativeReward((made_by, {**given, **options}), KernelPlan(spec, fields), Options(**{**options, "name": name}))


def kernel_spec(reward: NativeReward) -> tuple[dict[str, Any], tuple[KernelColumn, ...]]:
    """The kernel of a native reward function, and its columns: to make another of it."""
    spec: dict[str, Any] = json.loads(reward._plan.spec)
    return spec, reward._plan.fields


def _named(given: Mapping[str, Any], plan: KernelPlan) -> dict[str, str]:
    """The options that name columns of the dataset, with those columns."""
    if any(isinstance(value, NativeReward) for value in given.values()):
        return {}  # that one names them
    columns = {field.column for field in plan.fields if field.column not in _OWN}
    return {option: value for option, value in given.items() if isinstance(value, str) and value in columns}


def _is_whole(text: str) -> bool:
    """Returns whether it has no half of a surrogate pair."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
