"""Columns of any type on the process lane: what takes long to load, what can't be loaded, what
can't be sent, and the modules that values need."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from guerdon import DataError, Dispatcher, Status, group_reward, reward
from guerdon._functions.serialization import function_pickler
from guerdon._functions.serialization.column_values import BatchPickler
from guerdon._worker import columns as worker_columns
from tests.contract import misbehaving_functions as behaviours
from tests.contract.misbehaving_functions import NotesItsLoads, SlowToLoad, UnfitToLoad
from tests.simple import streamed
from tests.stress.plain_functions import number_of


def test_values_that_take_long_to_load_are_loaded_at_last(tmp_path: Path) -> None:
    """What is behind a slow sample is given to others, over and over; a frame that is slow to load
    must get on too."""
    path = tmp_path / "notes"
    with Dispatcher([reward(behaviours.takes)], workers=2) as made:
        result = made.score(completions=["c"] * 24, value=[SlowToLoad(0.04)] * 24, path=[str(path)] * 24)
    assert result.status.max() == Status.OK
    assert result.attempts.max() == 1
    assert len(path.read_text().splitlines()) == 24


UNFIT = {
    "error": (Status.ERROR, "the arguments could not be unpickled in the worker: ValueError: wrong"),
    "hang": (Status.TIMEOUT, "no answer within the timeout of 0.5 s"),
    "exit": (Status.CRASHED, "the worker process exited with status 3"),
}


@pytest.mark.fault(
    "a value of a column raises, hangs or ends its worker when it is unpickled there",
    sees="error, timeout or crashed for its own sample; all others are ok, each called once",
)
@pytest.mark.parametrize("how", UNFIT)
@pytest.mark.parametrize("among", [{"index": 1}, behaviours.Silent()], ids=["plain values", "objects"])
def test_a_value_that_cannot_be_loaded_fails_its_own_sample(tmp_path: Path, how: str, among: object) -> None:
    path, bad = tmp_path / "notes", 300
    values: list[object] = [among] * 512
    values[bad] = UnfitToLoad(how)
    with Dispatcher([reward(behaviours.takes, timeout=0.5)], workers=2) as made:
        result = made.score(completions=["c"] * 512, value=values, path=[str(path)] * 512)
    (failure,) = result.failures()
    status, reason = UNFIT[how]
    assert (failure.sample, failure.status) == (bad, status)
    assert failure.reason.startswith(reason)
    assert failure.attempts == (2 if how == "exit" else 1)
    assert len(path.read_text().splitlines()) == 511


@pytest.mark.parametrize("how", UNFIT)
def test_a_value_that_cannot_be_loaded_fails_its_own_group(how: str) -> None:
    ranked = group_reward(lambda completions, value: [1.0] * len(completions), name="ranked", timeout=0.5)
    values: list[object] = [None] * 32
    values[9] = UnfitToLoad(how)
    with Dispatcher([ranked], workers=2) as made:
        result = made.score(completions=["c"] * 32, value=values, num_generations=4)
    assert {failure.sample for failure in result.failures()} == {8, 9, 10, 11}
    assert {failure.status for failure in result.failures()} == {UNFIT[how][0]}


def test_a_gathered_call_on_a_value_that_cannot_be_loaded_is_split() -> None:
    gathered = reward(lambda completions, value: [1.0] * len(completions), name="gathered", batch_size=16)
    values: list[object] = [None] * 64
    values[9] = UnfitToLoad()
    with Dispatcher([gathered], workers=2) as made:
        result = made.score(completions=["c"] * 64, value=values)
    assert [failure.sample for failure in result.failures()] == [9]


def test_values_of_additions_to_a_stream_are_loaded_for_their_own_samples() -> None:
    def number(value: object) -> float:
        return float(len(value)) if isinstance(value, str) else value.real + 0.0  # type: ignore[attr-defined]

    with Dispatcher([reward(number)], workers=1) as made:
        additions = (["text", "a"], [np.float64(2), "abc"], [5, UnfitToLoad()], [np.float64(3)])
        result = streamed(made, *({"completions": ["c"] * len(values), "value": values} for values in additions))
    assert result.rewards.ravel()[[0, 1, 2, 3, 4, 6]].tolist() == [4, 1, 2, 3, 5, 3]
    assert [failure.sample for failure in result.failures()] == [5]


class Nests:
    """Its pickle holds another one, of a list."""

    def __reduce__(self) -> Any:
        return pickle.loads, (pickle.dumps([]),)


def test_values_whose_pickle_holds_another_are_not_shared() -> None:
    def appends(completion: str, value: list[str]) -> float:
        value.append(completion)
        return float(len(value))

    with Dispatcher([reward(appends)], workers=1) as made:
        result = made.score(completions=["c"] * 40, value=[Nests() for _ in range(40)])
    assert result.rewards.ravel().tolist() == [1.0] * 40


def test_a_class_that_only_this_process_knows_is_made_once_for_all_its_values() -> None:
    """Making it takes ten times as long as reading a value of it."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("class Spec:\n    def __init__(self, answer): self.answer = answer", scope)
    pickles, _ = BatchPickler().dumps([[scope["Spec"](index) for index in range(16)]])
    worker_columns._known.clear()
    rows = [worker_columns._load(memoryview(pickled)) for pickled in pickles]
    assert [row[0][0].answer for row in rows] == list(range(16))
    assert len(worker_columns._known) == 1
    assert len({type(row[0][0]) for row in rows}) == 1


def test_a_class_that_only_this_process_knows_is_pickled_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickling it takes a hundred times as long as pickling a value of it."""
    pickled: list[object] = []
    original = function_pickler.dumps
    monkeypatch.setattr(
        function_pickler, "dumps", lambda value, *args: (pickled.append(value), original(value, *args))[1]
    )
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("class Spec:\n    def __init__(self, answer): self.answer = answer", scope)
    spec = scope["Spec"]
    with Dispatcher(
        [
            reward(lambda completion, value: float(value.answer), name="first"),
            reward(lambda completion, value, other: float(value.answer), name="second"),
        ],
        workers=1,
    ) as made:
        for _ in range(2):
            pickled.clear()
            result = made.score(completions=["c"] * 200, value=[spec(1)] * 200, other=[spec(2)] * 200)
            assert result.rewards.min() == 1
            assert pickled == [spec]


def test_values_of_classes_that_only_this_process_knows() -> None:
    """A class of a script or a notebook goes along, and stays one class."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(
        """
import enum
class Spec:
    def __init__(self, answer): self.answer = answer
class Kind(enum.Enum):
    EXACT = 1
def score(completion, spec, kind):
    assert isinstance(spec, Spec) and kind is Kind.EXACT
    return float(completion == spec.answer)
""",
        scope,
    )
    texts = [str(index) for index in range(40)]
    specs = [scope["Spec"](text if index % 2 else "other") for index, text in enumerate(texts)]
    with Dispatcher([reward(scope["score"])], workers=2) as made:
        result = made.score(completions=texts, spec=specs, kind=[scope["Kind"].EXACT] * 40)
    assert not result.failures()
    assert result.rewards.ravel().tolist() == [float(index % 2) for index in range(40)]


@pytest.mark.parametrize("how", ["whole", "stream"])
def test_constants_are_loaded_once_a_worker_and_batch(tmp_path: Path, how: str) -> None:
    def step(trainer_state: Any) -> float:
        return float(trainer_state.step)

    with Dispatcher([reward(step)], workers=2) as made:
        for batch in range(12):  # more than a worker keeps of what is the same for all samples
            state = NotesItsLoads(str(tmp_path / f"loads {batch}"))
            state.step = batch  # type: ignore[attr-defined]
            if how == "whole":
                result = made.score(completions=["c"] * 256, trainer_state=state)
            else:
                result = streamed(made, *[{"completions": ["c"] * 64}] * 4, trainer_state=state)
            assert (result.rewards == batch).all()
            assert 1 <= len(Path(state.path).read_text().splitlines()) <= 2


def test_a_tensor_of_a_device_is_refused_with_its_column() -> None:
    torch = pytest.importorskip("torch")
    # A worker imports torch for what it is sent.
    with Dispatcher([reward(lambda completion, value: 1.0, timeout=250)], workers=1) as made:
        with pytest.raises(DataError, match=r"column 'value' of sample 1 .* a tensor on meta would open that device"):
            made.score(completions=["c"] * 2, value=[torch.ones(1), torch.empty(1, device="meta")])
        assert made.score(completions=["c"] * 2, value=[torch.ones(1)] * 2).status.max() == Status.OK


def test_a_view_of_a_tensor_travels_without_the_rest_of_it() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.arange(64 * 1024, dtype=torch.float32).reshape(64, 1024)
    views: list[object] = [*whole[:8], whole[:, 5], {"row": whole[9]}, whole[10].requires_grad_()]
    pickles, modules = BatchPickler().dumps([views])
    assert len(pickles) == len(views)
    assert max(map(len, pickles)) < 6000
    assert "torch._utils" in modules
    for view, pickled in zip(views, pickles, strict=True):
        ((loaded,),) = pickle.loads(pickled)
        one, other = (view["row"], loaded["row"]) if isinstance(view, dict) else (view, loaded)
        assert torch.equal(one, other)
        assert one.requires_grad == other.requires_grad  # type: ignore[attr-defined]


def test_arrays_travel_with_their_type() -> None:
    def is_array(value: object) -> float:
        import numpy

        assert isinstance(value, numpy.ndarray)
        return float(value.sum())

    rows = np.arange(12, dtype=np.float64).reshape(6, 2)
    with Dispatcher([reward(is_array)], workers=1) as made:
        assert made.score(completions=["c"] * 6, value=rows).rewards.ravel().tolist() == rows.sum(axis=1).tolist()


# A module whose class is in a column, and that acts when a worker or its loader imports it.
MODULE = """
import os, sys, threading, time
if "_guerdon_worker" in sys.modules:
    with open({notes!r}, "a") as notes:
        notes.write(f"{{os.getpid()}}\\n")
    {harm}
class Value:
    number = 1.0
"""


Made = Callable[[str], tuple[Any, Path]]


@pytest.fixture
def value_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Made:
    """Makes a module that does so much harm; a value of it, and who has imported it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(harm: str) -> tuple[Any, Path]:
        notes = tmp_path / "notes"
        name = "values_of_" + "".join(char for char in request.node.name if char.isalnum())
        (tmp_path / f"{name}.py").write_text(MODULE.format(notes=str(notes), harm=harm))
        return importlib.import_module(name).Value(), notes

    return make


@pytest.mark.parametrize("live", [False, True], ids=["before workers start", "workers live"])
def test_one_process_imports_them_in_the_time_of_no_call(value_of: Made, live: bool) -> None:
    value, notes = value_of("time.sleep(0.8)")
    with Dispatcher([reward(number_of, timeout=0.4)], workers=2) as made:
        if live:
            assert made.score(completions=["c"], value=[SimpleNamespace(number=2.0)]).rewards.item() == 2.0
        result = made.score(completions=["c"] * 64, value=[value] * 64)
        again = made.score(completions=["c"] * 64, value=[value] * 64)
    assert result.rewards.mean() == again.rewards.mean() == 1.0, result.failures()
    assert result.attempts.max() == 1
    assert live or len(notes.read_text().split()) == 1


def test_calls_with_a_worker_each_do_not_import_them_each(value_of: Made) -> None:
    value, notes = value_of("time.sleep(0.2)")
    with Dispatcher([reward(number_of, isolation="call")], workers=2) as made:
        assert made.score(completions=["c"] * 2, value=[SimpleNamespace(number=2.0)] * 2).rewards.mean() == 2.0
        result = made.score(completions=["c"] * 24, value=[value] * 24)
    assert result.rewards.mean() == 1.0, result.failures()
    # Workers that were forked before the values came, a try, and the loader.
    assert len(notes.read_text().split()) < 12


def test_workers_import_for_themselves_what_leaves_threads(value_of: Made, capfd: pytest.CaptureFixture[str]) -> None:
    value, notes = value_of("threading.Thread(target=threading.Event().wait, daemon=True).start()")
    with Dispatcher([reward(number_of, timeout=5)], workers=2) as made:
        result = made.score(completions=["c"] * 64, value=[value] * 64)
        loads = made.stats()["worker_loads"]
    assert result.rewards.mean() == 1.0, result.failures()
    assert loads == 0
    assert 2 <= len(notes.read_text().split()) <= 3
    assert "which values of columns need, left 1 thread" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("harm", "status", "reason"),
    [
        ("os._exit(3)", Status.ERROR, "the worker process exited with status 3 while it imported the modules of its"),
        ("time.sleep(600)", Status.ERROR, "were not imported within the setup_timeout of 1 s"),
        (
            "raise OSError('no disk')",
            Status.ERROR,
            "the arguments could not be unpickled in the worker: OSError: no disk",
        ),
    ],
    ids=["ends", "hangs", "raises"],
)
def test_an_import_that_fails_fails_the_calls(value_of: Made, harm: str, status: Status, reason: str) -> None:
    value, _ = value_of(harm)
    with Dispatcher([reward(number_of, setup_timeout=1)], workers=2, max_failure_rate=1.0) as made:
        result = made.score(completions=["c"] * 4, value=[value] * 4)
        later = made.score(completions=["c"] * 4, value=[SimpleNamespace(number=2.0)] * 4)
    assert later.rewards.mean() == 2.0, later.failures()
    assert {failure.status for failure in result.failures()} == {status}
    assert all(reason in failure.reason for failure in result.failures()), result.failures()[0].reason
