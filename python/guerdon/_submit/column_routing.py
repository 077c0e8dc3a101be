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
- U-8  What the columns' names settle is worked out once for all batches that bring the same ones (`layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._options import MOST_GENERATIONS
from guerdon._registration.spec import FunctionSpec
from guerdon._submit.columns import TEXT, Data, Single
from guerdon._submit.layout import Asker, Layout, Route, Source, layout
from guerdon._submit.token_counts import counting
from guerdon._submit.trainer_state import names_history, snapshot
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon._http.template import Field
    from guerdon._native import Const, Use

# What says whether two batches bring the same columns: their names, and whether there is a trainer's state.
_Names = tuple[tuple[str, ...], tuple[str, ...], bool]


@dataclass(frozen=True)
class Plan:
    """How a batch goes to the engine: its columns, what they are called, and one `Use` per function."""

    columns: list[list[object] | Const]
    names: list[str]
    uses: list[Use]


class Uses:
    """Works out columns and uses for a fixed list of functions, batch by batch."""

    def __init__(self, specs: Sequence[FunctionSpec]) -> None:
        self._askers = tuple(
            Asker(spec, spec.lane == "process" and names_history(spec.target), counting(spec)) for spec in specs
        )
        # Of the last batch (U-8). Written by whatever thread has one with other columns, as a whole.
        self._last: tuple[_Names, Layout] | None = None

    def of(self, data: Data, *, grows: bool = False) -> Plan:
        """The engine's columns and, for each function, which of them its calls get.

        Args:
            grows: Each addition must bring the same columns, whatever is in them.

        Raises:
            DataError: U-2, U-3, U-5, U-6, K-2 of `tokens`.
        """
        known = self._layout(data)
        columns = _Columns(data, known, grows)
        uses = [route.use or columns.use(route) for route in known.routes]
        return Plan(columns.values, columns.names, uses)

    def _layout(self, data: Data) -> Layout:
        names = tuple(data.own), tuple(data.dataset), data.trainer_state is not None
        last = self._last
        if last is None or last[0] != names:
            last = self._last = names, layout(self._askers, data)
        return last[1]


class _Columns:
    """The engine's columns of one batch: those of its layout (U-1), and behind them what requests are filled with."""

    def __init__(self, data: Data, known: Layout, grows: bool) -> None:
        self._data = data
        self._grows = grows
        self._indexes = {source: index for index, source in enumerate(known.sources)}
        self._filled: dict[tuple[Source, Field], tuple[str, int]] = {}
        self.names = list(known.names)
        self.values = [self._value(*source) for source in known.sources]

    def use(self, route: Route) -> Use:
        """What a function gets that is not the same for every batch: counted tokens, texts of requests."""
        from guerdon._native import Use

        asker = route.asker
        tokens = None
        if asker.counting is not None and route.counted is not None:
            tokens = asker.counting.count(self._data, *route.counted)
        http = asker.spec.http
        if http is None:
            return Use(route.names, route.columns, route.finish_names, route.finish_columns, tokens)
        filled = [self._fill(route.available[field.column], field, asker.spec.name) for field in http.fields]
        return Use([kind for kind, _ in filled], [index for _, index in filled], tokens=tokens)

    def _fill(self, source: Source, field: Field, function: str) -> tuple[str, int]:
        """What kind of texts a field of a request is, and the index of its column (U-6)."""
        from guerdon._http.fields import PLAIN, texts_of

        known = self._filled.get((source, field))
        if known is None:
            kind, name = source
            values = self._data.texts if name == TEXT else getattr(self._data, kind)[name]
            made = texts_of(values, field, self._data.samples, function, always=self._grows)
            if made is None:
                known = PLAIN, self._index(source)
            else:
                self.values.append(made[1])
                self.names.append(field.column)
                known = made[0], len(self.values) - 1
            self._filled[source, field] = known
        return known

    def _index(self, source: Source) -> int:
        index = self._indexes.get(source)
        if index is None:
            self.values.append(self._value(*source))
            self.names.append(source[1])
            index = self._indexes[source] = len(self.values) - 1
        return index

    def _value(self, kind: str, name: str) -> list[object] | Const:
        if kind == "own":
            return self._data.texts if name == TEXT else self._data.own[name]
        if kind == "dataset":
            values = self._data.dataset[name]
            return _const(values.value) if isinstance(values, Single) else values
        state = self._data.trainer_state
        return _const(state if name == "live" else snapshot(state, history=name == "whole"))


def _const(value: object) -> Const:
    from guerdon._native import Const

    return Const(value)


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
