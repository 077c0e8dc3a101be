"""Which columns each function gets, and what of the trainer's state."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

import guerdon._native as native
from guerdon import DataError, Dispatcher, StatefulReward, group_reward, reward
from guerdon._batch.column_routing import ColumnRouter
from guerdon._batch.columns import collect
from guerdon._batch.submission import check_group_size
from guerdon._batch.trainer_state import names_history, snapshot
from guerdon._functions.build import spec_of
from tests.simple import on_lane


@dataclass
class State:
    """Looks like transformers' TrainerState."""

    global_step: int = 7
    log_history: list[dict[str, float]] = field(default_factory=lambda: [{"loss": 1.0}])


def passed(item: object, **columns: object) -> dict[str, object]:
    """What the calls of `item` would be given: name -> column, as its Use says, and no column
    besides."""
    given = {"completions": ["a", "b"], **columns}
    data = collect(given.pop("prompts", None), given.pop("completions"), given.pop("completion_ids", None), given)
    values, uses = routed([item], data)
    names, indexes, finish_names, finish_indexes = uses[0]
    assert sorted({*indexes, *finish_indexes}) == list(range(len(values)))
    wants = names if names is not None else spec_of(item).wants.named[: len(indexes)]
    got = dict(zip(wants, (values[index] for index in indexes), strict=True))
    got.update({f"finish:{n}": values[index] for n, index in zip(finish_names, finish_indexes, strict=True)})
    return {name: value.value if isinstance(value, _Const) else value for name, value in got.items()}


class _Const:
    def __init__(self, value: object) -> None:
        self.value = value


def routed(items: list[object], data: Any) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Routes with a `FunctionColumns` and a `Constant` that can be read back."""

    def use(
        names: Any, columns: Any, finish_names: Any = (), finish_columns: Any = (), tokens: Any = None, second: Any = ()
    ) -> Any:
        assert tokens is None
        assert not second
        return (names, columns, finish_names, finish_columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "FunctionColumns", use)
        patch.setattr(native, "Constant", _Const)
        plan = ColumnRouter([spec_of(item) for item in items]).route(data)
        return plan.columns, plan.uses  # type: ignore[return-value]


def test_text_is_made_only_if_somebody_asks() -> None:
    assert passed(reward(lambda completion: 1.0, name="f"), completions=[3, 4]) == {"completion": [3, 4]}


# --- what each contract gets


def test_only_declared_columns_travel() -> None:
    got = passed(reward(lambda completion, answer: 1.0, name="f"), prompts=["p", "q"], answer=[1, 2], level=[3, 4])
    assert got == {"completion": ["a", "b"], "answer": [1, 2]}


def test_a_column_travels_once_for_all() -> None:
    data = collect(None, ["a", "b"], None, {"answer": [1, 2]})
    functions = [
        reward(lambda completion, answer: 1.0, name="f"),
        group_reward(lambda completions, answer: [], name="g"),
    ]
    values, uses = routed(functions, data)
    assert len(values) == 2
    assert uses[0][1] == uses[1][1]


def test_per_sample_names() -> None:
    def f(prompt: Any, completion: Any, completion_ids: Any, text: Any, environment: Any, trainer_state: Any) -> float:
        return 1.0

    state, environments = State(), [object(), object()]
    got = passed(
        reward(f), prompts=["p", "q"], completion_ids=[[1], [2]], environments=environments, trainer_state=state
    )
    assert got == {
        "prompt": ["p", "q"],
        "completion": ["a", "b"],
        "completion_ids": [[1], [2]],
        "text": ["a", "b"],
        "environment": environments,
        "trainer_state": state,
    }


def test_a_default_gets_its_column_if_there_is_one() -> None:
    function = reward(lambda completion, level=0, answer=None: 1.0, name="f")
    assert passed(function) == {"completion": ["a", "b"]}
    assert passed(function, answer=[1, 2]) == {"completion": ["a", "b"], "answer": [1, 2]}


def test_row_gets_the_dataset_columns_not_named_otherwise() -> None:
    got = passed(
        reward(lambda completion, answer, **row: 1.0, name="f"), prompts=["p", "q"], answer=[1, 2], text=[3, 4]
    )
    assert got == {"completion": ["a", "b"], "answer": [1, 2], "text": [3, 4]}


def test_group_names_are_lists() -> None:
    got = passed(group_reward(lambda completions, texts, answer: [], name="f"), answer=[1, 2])
    assert got == {"completions": ["a", "b"], "texts": ["a", "b"], "answer": [1, 2]}


def test_finish_group_gets_its_columns() -> None:
    class RankReward(StatefulReward):
        def score(self, completion: str) -> float:
            return 1.0

        def finish_group(self, scores: list[float | None], prompts: Any, **columns: Any) -> list[float | None]:
            return scores

    got = passed(RankReward(), prompts=["p", "q"], answer=[1, 2])
    assert got == {"completion": ["a", "b"], "finish:prompts": ["p", "q"], "finish:answer": [1, 2]}


def trl_all(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
    return [1.0] * len(prompts)


async def trl_async(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
    return [1.0] * len(prompts)


def test_an_undecorated_function_gets_all_that_trl_gives() -> None:
    got = passed(trl_all, prompts=["p", "q"], completion_ids=[[1], [2]], answer=[1, 2], trainer_state=State())
    assert set(got) == {"prompts", "completions", "completion_ids", "answer", "trainer_state"}
    assert vars(got["trainer_state"]) == {"global_step": 7}  # type: ignore[arg-type]


def test_environments_stay_in_this_process() -> None:
    environments = [object(), object()]
    assert "environments" not in passed(trl_all, prompts=["p", "q"], environments=environments)
    got = passed(trl_async, prompts=["p", "q"], environments=environments)
    assert got["environments"] == environments

    def named(prompts: Any, completions: Any, environments: Any, **kwargs: Any) -> list[float]:
        return []

    assert spec_of(named).lane == "thread"
    assert passed(named, prompts=["p", "q"], environments=environments)["environments"] == environments


def test_a_missing_column_is_refused_with_the_columns_there_are() -> None:
    function = reward(lambda completion, anwser: 1.0, name="correct")
    with pytest.raises(DataError, match=r"'correct' asks for the column 'anwser'.*answer, level.*mean 'answer'\?"):
        passed(function, answer=[1, 2], level=[1, 2])
    with pytest.raises(DataError, match=r"Its columns: none\. Add it"):
        passed(function)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("prompt", "prompts="),
        ("completion_ids", "completion_ids="),
        ("environment", "envir"),
        ("trainer_state", "trainer"),
    ],
)
def test_a_missing_reserved_value_is_refused_with_where_it_comes_from(name: str, hint: str) -> None:
    function = reward(eval(f"lambda {name}: 1.0"), name="f")
    with pytest.raises(DataError, match=rf"'f' asks for '{name}'.*{hint}"):
        passed(function)


@pytest.mark.parametrize("name", ["text", "environment", "prompt"])
def test_a_reserved_name_that_is_also_a_column_is_ambiguous(name: str) -> None:
    function = reward(eval(f"lambda {name}: 1.0"), name="f")
    with pytest.raises(DataError, match=rf"'{name}'.*ambiguous"):
        passed(function, **{name: ["x", "y"]})


def test_a_column_called_text_is_just_a_column_for_trl_functions() -> None:
    def plain(completions: Any, text: Any, **kwargs: Any) -> list[float]:
        return []

    assert passed(plain, text=["x", "y"])["text"] == ["x", "y"]


@pytest.mark.parametrize(
    ("size", "samples", "ranks"), [(4, 6, 1), (4, 3, 2), (0, 4, 1), (-1, 4, 1), (True, 4, 1), ("4", 4, 1)]
)
def test_groups_that_are_not_whole_are_refused(size: Any, samples: int, ranks: int) -> None:
    with pytest.raises(DataError):
        check_group_size(size, samples, ranks=ranks)


def test_groups_may_lie_on_several_ranks() -> None:
    assert check_group_size(4, 6, ranks=2) == 4


# --- the trainer's state


def reads_history(completion: str, trainer_state: Any) -> float:
    return float(max(entry["loss"] for entry in trainer_state.log_history))


def reads_step(completion: str, trainer_state: Any) -> float:
    return float(trainer_state.global_step)


def test_a_worker_gets_the_history_of_the_state_if_the_function_names_it() -> None:
    for function, history in ((reads_step, {}), (reads_history, {"log_history": [{"loss": 1.0}]})):
        got: Any = passed(reward(function), trainer_state=State())
        assert vars(got["trainer_state"]) == {"global_step": 7, **history}


@pytest.mark.parametrize("opened", [False, True], ids=["submitted", "opened"])
@pytest.mark.parametrize("lane", ["thread", "asyncio"])
def test_a_batch_has_the_state_of_its_submission(lane: str, opened: bool) -> None:
    """Also where the trainer goes on before the calls begin, or between two additions."""
    gate = threading.Event()

    def step(completion: str, trainer_state: Any) -> float:
        gate.wait(10)
        return float(trainer_state.global_step + len(trainer_state.log_history))

    state = State()
    with Dispatcher([on_lane(step, lane)], num_generations=4) as made:
        if opened:
            pending: Any = made.stream(trainer_state=state)
            pending.add(completions=["a", "b"])
        else:
            pending = made.submit(completions=["a", "b", "c", "d"], trainer_state=state)
        state.global_step = 8
        state.log_history.append({"loss": 0.5})
        if opened:
            pending.add(completions=["c", "d"])
            pending.finish()
        gate.set()
        assert pending.result().rewards.tolist() == [[[8.0]] * 4]


def test_a_function_in_this_process_gets_the_state_itself() -> None:
    state = State()
    got = passed(reward(lambda completion, trainer_state: 1.0, name="f", lane="thread"), trainer_state=state)
    assert got["trainer_state"] is state


def test_function_naming_the_history_gets_it() -> None:
    class Method(StatefulReward):
        def score(self, trainer_state: Any) -> float:
            return float(sum(len(s.log_history) for s in [trainer_state]))

    assert names_history(reads_history)
    assert names_history(Method())
    assert names_history(lambda state: getattr(state, "log_history"))  # noqa: B009
    assert not names_history(trl_all)
    assert not names_history(len)


def test_other_objects_than_trainer_states_are_shipped_unchanged() -> None:
    assert snapshot({"step": 1}, history=False) == {"step": 1}
    assert snapshot(None, history=False) is None


def test_unsendable_values_are_refused_with_their_place() -> None:
    values = [1, threading.Lock(), 3]
    with Dispatcher([reward(lambda completion, tool: 1.0, name="f")], workers=1) as dispatcher:
        with pytest.raises(DataError, match=r"column 'tool' of sample 1 can't be sent to a worker.*lane='thread'"):
            dispatcher.submit(completions=["a", "b", "c"], tool=values)
        assert dispatcher.score(completions=["a"], tool=[1]).rewards.item() == 1.0
    with Dispatcher([reward(lambda completion, tool: 1.0, name="f", lane="thread")]) as dispatcher:
        assert dispatcher.score(completions=["a", "b", "c"], tool=values).rewards.sum() == 3.0


def test_bad_columns_are_refused_before_any_call() -> None:
    """Nothing starts for a batch that can't be scored."""
    with Dispatcher([reward(lambda completion, answer: 1.0, name="f")]) as dispatcher:
        with pytest.raises(DataError, match="'answer'"):
            dispatcher.submit(completions=["a"])
        assert dispatcher.stats() == {}


@pytest.mark.parametrize("name", ["a\0b", "\0", "half \ud800"])
def test_a_name_that_cannot_be_sent_to_a_worker_is_refused(name: str) -> None:
    def row(completion: str, **row: object) -> float:
        return 0.0

    def two(completion: str) -> float:
        return 0.0

    with pytest.raises(DataError, match=r"'row' would get.*Rename the column"):
        passed(reward(row), **{name: [1, 2]})
    assert passed(reward(two), **{name: [1, 2]}) == {"completion": ["a", "b"]}


# --- the layout of columns


def test_more_columns_than_a_message_holds_are_refused_at_once() -> None:
    @reward
    def every(completion: str, **row: int) -> float:
        return float(len(row))

    router = ColumnRouter([spec_of(every)])
    columns = {f"c{index}": [index] for index in range(65_535)}
    started = time.monotonic()
    with pytest.raises(DataError, match="'every' would get 65536 columns: expected at most 65535"):
        router.route(collect(None, ["a"], None, columns))
    assert time.monotonic() - started < 20  # it took a minute, going through all names for each
    del columns["c0"]
    assert len(router.route(collect(None, ["a"], None, columns)).names) == 65_535


def test_batches_with_other_columns_are_laid_out_anew() -> None:
    uses = ColumnRouter([spec_of(reward(lambda completion, answer=0, **row: 1.0, name="f"))])

    def columns(**given: object) -> list[object]:
        data = collect(None, ["a", "b"], None, given)
        return list(uses.route(data).columns)

    assert columns(answer=[1, 2]) == columns(answer=[1, 2]) == [["a", "b"], [1, 2]]
    assert columns(level=[3, 4]) == [["a", "b"], [3, 4]]
    assert columns() == [["a", "b"]]
    assert columns(answer=[5, 6]) == [["a", "b"], [5, 6]]


def test_refused_functions_are_refused_again() -> None:
    uses = ColumnRouter([spec_of(reward(lambda completion, answer: 1.0, name="f"))])
    success, bare = collect(None, ["a"], None, {"answer": [1]}), collect(None, ["a"], None, {})
    for data, refused in ((success, False), (bare, True), (bare, True), (success, False)):
        if refused:
            with pytest.raises(DataError, match="'answer'"):
                uses.route(data)
        else:
            assert len(uses.route(data).columns) == 2
