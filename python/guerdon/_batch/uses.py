"""Which columns each reward function gets of a batch: the engine's columns and one `Use` per function.

- U-1  Only columns that some function declared travel to the engine; each travels once, however many functions want it.
- U-2  A batch that lacks what a function requires is refused before any call, with the names that there are.
- U-3  A reserved name means the reserved value. A function that asks for one while the dataset has a column of that
       name is refused; but where a trainer has environments, a column ``environment`` says which one a row wants, and who
       asks for ``environment`` gets it itself.
- U-4  Live environments never travel to a worker.
- U-5  A column whose name can't be put into a message to a worker is refused where a function would get it.
- U-6  A function of the http lane gets texts, whatever its columns hold; what are texts already is not copied.
- U-7  Where a limit counts tokens by a function, that is called here, for each sample, before anything of the batch is submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._batch.columns import COMPLETION_IDS, COMPLETIONS, ENVIRONMENTS, PROMPTS, TEXT, TRAINER_STATE, Data, Single
from guerdon._batch.tokens import counting
from guerdon._batch.trainer_state import names_history, snapshot
from guerdon._registration.spec import FunctionSpec, Wants
from guerdon.errors import DataError
from guerdon.settings import MOST_GENERATIONS

if TYPE_CHECKING:
    from guerdon._http.template import Field
    from guerdon._native import Const, Use

# Where a value comes from: ("own", "prompts"), ("dataset", "answer"), ("state", "live").
Source = tuple[str, str]

_RESERVED: dict[str, Source] = {
    "prompt": ("own", PROMPTS),
    "prompts": ("own", PROMPTS),
    "completion": ("own", COMPLETIONS),
    "completions": ("own", COMPLETIONS),
    "completion_ids": ("own", COMPLETION_IDS),
    "text": ("own", TEXT),
    "texts": ("own", TEXT),
    "environment": ("own", ENVIRONMENTS),
    "environments": ("own", ENVIRONMENTS),
    "trainer_state": ("state", "live"),
}

_HINTS = {
    PROMPTS: "give prompts=[...]",
    COMPLETION_IDS: "give completion_ids=[...]",
    ENVIRONMENTS: "it needs a trainer with environments, or environments=[...]",
    "live": "it comes from a trainer; elsewhere give trainer_state=...",
}


@dataclass(frozen=True)
class Plan:
    """How a batch goes to the engine: its columns, what they are called, and one `Use` per function."""

    columns: list[list[object] | Const]
    names: list[str]
    uses: list[Use]


class Uses:
    """Works out columns and uses for a fixed list of functions, batch by batch."""

    def __init__(self, specs: Sequence[FunctionSpec]) -> None:
        self._specs = tuple(specs)
        self._counted = tuple(counting(spec) for spec in self._specs)
        self._history = tuple(spec.lane == "process" and names_history(spec.target) for spec in self._specs)

    def of(self, data: Data, *, grows: bool = False) -> Plan:
        """The engine's columns and, for each function, which of them its calls get.

        Raises:
            DataError: U-2, U-3.
        """
        from guerdon._native import Use

        columns = _Columns(data, grows)
        uses = []
        for spec, history, counted in zip(self._specs, self._history, self._counted, strict=True):
            tokens = None
            if counted is not None:
                there = _available(spec, counted.wants, data, counted.called)
                tokens = counted.count(data, there, _arrange(counted.wants, there)[0])
            available = _available(spec, spec.wants, data, spec.name)
            names, by_position = _arrange(spec.wants, available)
            if spec.http is not None:
                filled = [columns.filled(available[field.column], field, spec.name) for field in spec.http.fields]
                uses.append(Use([kind for kind, _ in filled], [index for _, index in filled], tokens=tokens))
                continue
            _refuse_odd(spec.name, names)
            indexes = [columns.index(self._source(spec, available[name], history)) for name in names]
            finish_names: tuple[str, ...] = ()
            finish_indexes: list[int] = []
            if spec.finish is not None:
                there = _available(spec, spec.finish, data, f"{spec.name}.finish_group")
                finish_names, _ = _arrange(spec.finish, there)
                finish_indexes = [columns.index(self._source(spec, there[name], history)) for name in finish_names]
            uses.append(Use(None if by_position else names, indexes, finish_names, finish_indexes, tokens))
        return Plan(columns.values, columns.names, uses)

    @staticmethod
    def _source(spec: FunctionSpec, source: Source, history: bool) -> Source:
        if source[0] != "state" or spec.lane != "process":
            return source
        return ("state", "whole" if history else "shipped")


class _Columns:
    """The engine's columns of one batch, made as they are asked for (U-1)."""

    def __init__(self, data: Data, grows: bool) -> None:
        self.values: list[list[object] | Const] = []
        self.names: list[str] = []
        self._data = data
        self._indexes: dict[Source, int] = {}
        self._grows = grows  # each addition must bring the same columns, whatever is in them
        self._filled: dict[tuple[Source, Field], tuple[str, int]] = {}

    def index(self, source: Source) -> int:
        index = self._indexes.get(source)
        if index is None:
            self.values.append(self._value(*source))
            self.names.append(TRAINER_STATE if source[0] == "state" else source[1])
            index = self._indexes[source] = len(self.values) - 1
        return index

    def filled(self, source: Source, field: Field, function: str) -> tuple[str, int]:
        """What kind of texts a field of a request is, and the index of its column (U-6)."""
        from guerdon._http.fields import PLAIN, texts_of

        known = self._filled.get((source, field))
        if known is None:
            kind, name = source
            values = self._data.texts if name == TEXT else getattr(self._data, kind)[name]
            made = texts_of(values, field, self._data.samples, function, always=self._grows)
            if made is None:
                known = PLAIN, self.index(source)
            else:
                self.values.append(made[1])
                self.names.append(field.column)
                known = made[0], len(self.values) - 1
            self._filled[source, field] = known
        return known

    def _value(self, kind: str, name: str) -> list[object] | Const:
        from guerdon._native import Const

        if kind == "own":
            return self._data.texts if name == TEXT else self._data.own[name]
        if kind == "dataset":
            values = self._data.dataset[name]
            return Const(values.value) if isinstance(values, Single) else values
        state = self._data.trainer_state
        return Const(state if name == "live" else snapshot(state, history=name == "whole"))


def _arrange(wants: Wants, available: dict[str, Source]) -> tuple[tuple[str, ...], bool]:
    """The names of the calls, in order, and whether their values go by position."""
    names, by_position = wants.arrange(available)
    if wants.row and not wants.everything:  # a reserved name that is not asked for is a column like any other
        taken = (*names, *wants.fixed)
        names += tuple(name for name, (kind, _) in available.items() if kind == "dataset" and name not in taken)
    return names, by_position


def _available(spec: FunctionSpec, wants: Wants, data: Data, called: str) -> dict[str, Source]:
    """Every name under which this batch has a value for the function, in the order in which a trainer gives them.

    Raises:
        DataError: U-2, U-3.
    """
    available: dict[str, Source] = {}
    for name in wants.reserved:
        kind, key = _RESERVED[name]
        if name in data.dataset:
            if name == "environment" and ENVIRONMENTS in data.own and name in wants.named:
                available[name] = (kind, key)
            elif name in wants.named:
                raise DataError(
                    f"reward function {called!r} asks for {name!r}, a reserved name, and the dataset has a column "
                    f"{name!r} too: ambiguous. Rename the column, or the parameter if another column is meant."
                )
        elif key != ENVIRONMENTS or spec.lane != "process":  # U-4; one that names them is on another lane
            there = data.trainer_state is not None if kind == "state" else key == TEXT or key in data.own
            if there:
                available[name] = (kind, key)
    available.update((name, ("dataset", name)) for name in data.dataset if name not in available)
    missing = wants.missing(available)
    if missing:
        raise DataError(_missing(called, missing, wants, data, available))
    return available


def _refuse_odd(called: str, names: tuple[str, ...]) -> None:
    """Refuses what no worker can be told (U-5); only ``**row`` and ``**columns`` can take such a name."""
    for name in names:
        if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError(
                f"the dataset has a column called {name!r}, which reward function {called!r} would get: a name can't "
                "hold a NUL or half a surrogate pair. Rename the column."
            )


def _missing(called: str, missing: Sequence[str], wants: Wants, data: Data, available: dict[str, Source]) -> str:
    name = missing[0]
    if name in wants.reserved:
        hint = _HINTS[_RESERVED[name][1]]
        return f"reward function {called!r} asks for {name!r}, which this batch doesn't have: {hint}."
    import difflib

    close = difflib.get_close_matches(name, list(available), n=1)
    there = ", ".join(data.dataset) or "none"
    return (
        f"reward function {called!r} asks for the column{'s' if len(missing) > 1 else ''} "
        f"{', '.join(map(repr, missing))}, which this batch doesn't have. Its columns: {there}."
        + (f" Did you mean {close[0]!r}?" if close else " Add it to the dataset, or give the parameter a default.")
    )


def check_group_size(num_generations: object, samples: int, *, ranks: int = 1) -> int:
    """`num_generations`, if the samples of all ranks make whole groups of it.

    Raises:
        DataError: It isn't a whole number of at least 1, or doesn't divide the number of samples.
    """
    if isinstance(num_generations, bool) or not isinstance(num_generations, int) or num_generations < 1:
        raise DataError(f"num_generations={num_generations!r}: expected a whole number of at least 1.")
    if num_generations > MOST_GENERATIONS:
        raise DataError(f"num_generations={num_generations}: expected at most {MOST_GENERATIONS}.")
    if samples * ranks % num_generations:
        where = f"{samples} samples" if ranks == 1 else f"{samples} samples on each of {ranks} ranks"
        raise DataError(
            f"{where} don't make whole groups of num_generations={num_generations}. Give num_generations completions "
            "per prompt, one "
            "prompt's behind the other."
        )
    return num_generations


def columns_group_size(size: int | None, samples: int, ranks: int, grouped: str | None) -> int:
    """The group size of a batch that a trainer gives: 1 where no function needs whole groups and none are there.

    Args:
        size: Completions per prompt, None if nobody says it.
        samples: Samples of this rank.
        grouped: A function that works on whole groups; None without one.

    Raises:
        DataError: That function can't have them.
    """
    if size is not None:
        check_group_size(size, samples, ranks=ranks)
    if grouped is not None:
        if size is None:
            raise DataError(
                f"{grouped!r} works on whole groups, and no trainer says how many completions a prompt has: give it, "
                "Dispatcher(..., num_generations=8)."
            )
        if samples % size:
            raise DataError(
                f"{grouped!r} works on whole groups, but the {samples} samples of this rank hold part of one "
                f"(num_generations={size}). Make the samples of a rank, per_device_train_batch_size * "
                "steps_per_generation (in evaluation per_device_eval_batch_size), a multiple of it."
            )
    return 1 if size is None or samples % size else size


def unshippable(error: TypeError, plan: Plan) -> Exception:
    """The engine's refusal of a value that no worker can get, in the words of whoever gave it."""
    if len(error.args) != 3:
        return error
    message, column, sample = error.args
    where = "" if sample is None else f" of sample {sample}"
    return DataError(
        f"column {plan.names[column]!r}{where} can't be sent to a worker process: {message}. Give it as plain values, "
        "or have "
        "the functions that want it run in this process: reward(fn, lane='thread')."
    )
