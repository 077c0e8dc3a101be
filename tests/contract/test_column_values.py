"""Columns of any type on the process lane: what takes long to load, what can't be loaded, what
can't be sent."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import DataError, Dispatcher, Status, reward
from tests.contract import misbehaving_functions as behaviours
from tests.contract.misbehaving_functions import SlowToLoad, UnfitToLoad


def test_values_that_take_long_to_load_are_loaded_at_last(tmp_path: Path) -> None:
    """What is behind a slow sample is given to others, over and over; a frame that is slow to load
    must get on too."""
    path = tmp_path / "notes"
    with Dispatcher([reward(behaviours.takes)], workers=2) as made:
        result = made.score(completions=["c"] * 24, value=[SlowToLoad(0.04)] * 24, path=[str(path)] * 24)
    assert result.status.max() == Status.OK
    assert result.attempts.max() == 1
    assert len(path.read_text().splitlines()) == 24


def test_values_that_cannot_be_loaded_fail_their_own_samples(tmp_path: Path) -> None:
    values: list[object] = [1, "two", UnfitToLoad(), None]
    with Dispatcher([reward(behaviours.takes, retries=3)], workers=1) as made:
        result = made.score(completions=["c"] * 4, value=values, path=[str(tmp_path / "notes")] * 4)
    failures = result.failures()
    assert 2 in {failure.sample for failure in failures}
    assert all("RuntimeError: not here" in failure.reason for failure in failures)
    assert result.status.ravel()[2] == Status.ERROR


def test_values_that_cannot_be_sent_are_refused_before_any_call() -> None:
    with Dispatcher([reward(behaviours.takes)], workers=1) as made, pytest.raises(DataError, match=r"'value'.*lock"):
        made.submit(completions=["c"], value=[threading.Lock()], path=["nowhere"])


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


def test_a_tensor_of_a_device_is_refused_with_its_column() -> None:
    """What can't be sent."""
    torch = pytest.importorskip("torch")
    # A worker imports torch for what it is sent.
    with Dispatcher([reward(lambda completion, value: 1.0, timeout=250)], workers=1) as made:
        with pytest.raises(DataError, match=r"column 'value' of sample 1 .* a tensor on meta would open that device"):
            made.score(completions=["c"] * 2, value=[torch.ones(1), torch.empty(1, device="meta")])
        assert made.score(completions=["c"] * 2, value=[torch.ones(1)] * 2).status.max() == Status.OK


def test_arrays_travel_with_their_type() -> None:
    def is_array(value: object) -> float:
        import numpy

        assert isinstance(value, numpy.ndarray)
        return float(value.sum())

    rows = np.arange(12, dtype=np.float64).reshape(6, 2)
    with Dispatcher([reward(is_array)], workers=1) as made:
        assert made.score(completions=["c"] * 6, value=rows).rewards.ravel().tolist() == rows.sum(axis=1).tolist()
