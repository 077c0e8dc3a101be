"""What functions return. On every lane and in every shape, it is a reward, an abstention, or an
error that names the function and the sample and says what it was; the cells beside it keep their
rewards."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, GuerdonWarning, RewardBatch, StatefulReward, Status, group_reward, reward
from tests.contract import unusual_values as odd
from tests.simple import on_lane


def of_samples() -> list[Any]:
    patience: dict[str, Any] = {"timeout": 250}  # calls import torch
    return [
        reward(odd.sample, name="process", **patience),
        reward(odd.sample, name="thread", lane="thread", **patience),
        on_lane(odd.sample, "asyncio", name="asyncio", **patience),
        reward(odd.elements, name="rowwise", rowwise=True, **patience),
    ]


def on_many(plain: Any, awaits: Any, finishing: StatefulReward) -> list[Any]:
    """Functions that are called on many samples, or finish a group."""
    return [
        group_reward(plain, name="process group"),
        group_reward(plain, name="thread group", lane="thread"),
        group_reward(awaits, name="asyncio group"),
        plain,
        awaits,
        reward(finishing, name="process finish"),
        reward(finishing, name="thread finish", lane="thread"),
    ]


ELEMENTS = on_many(odd.elements, odd.async_elements, odd.Finishing())
LISTS = on_many(odd.whole, odd.async_whole, odd.FinishingWhole())


def check_error(result: RewardBatch, sample: int, function: int, words: str) -> None:
    name = result.functions[function]
    assert result.status.reshape(len(result), -1)[sample, function] == Status.ERROR, (name, words)
    (failure,) = [f for f in result.failures() if (f.sample, f.function) == (sample, name)]
    assert re.search(words, failure.reason), failure.reason
    assert re.search("return|give", failure.reason), failure.reason
    assert len(failure.reason) < 500
    assert failure.attempts == 1  # no other attempt would mend it
    assert f"'{name}' on sample {sample}: error" in str(failure)


def check(functions: list[Any], table: dict[str, Any], refused: dict[str, Any], workers: int = 2) -> None:
    """Scores a batch with every value of both tables, as one group."""
    kinds = [*table, *refused]
    with Dispatcher(functions, workers=workers, max_failure_rate=1.0) as made:
        result = made.score(prompts=["p"] * len(kinds), completions=kinds, num_generations=len(kinds))
    for function, name in enumerate(result.functions):
        for sample, kind in enumerate(kinds):
            if kind in refused:
                check_error(result, sample, function, refused[kind][1])
                continue
            status, value = result.status[0, sample, function], result.rewards[0, sample, function]
            expected = table[kind][1]
            assert status == (Status.ABSTAINED if expected is None else Status.OK), (name, kind)
            wanted = np.float32(np.nan if expected is None else expected)
            np.testing.assert_array_equal(value, wanted, err_msg=f"{name}: {kind}")
            assert np.isnan(wanted) or np.signbit(value) == np.signbit(wanted)


@pytest.mark.fault(
    "a function returns what is no reward: a text, NaN, a list, a number beyond float32",
    sees="`error` that names function and sample, and says what to return",
)
def test_row_12_values_of_samples() -> None:
    check(of_samples(), {**odd.REWARDS, **odd.SINGLE}, odd.REFUSED)


def test_row_12_values_as_elements() -> None:
    dicts = {kind: (make, "dict") for kind, (make, _) in odd.SINGLE.items()}
    check(ELEMENTS, odd.REWARDS, {**odd.REFUSED, **dicts})


def test_row_12_tensors() -> None:
    pytest.importorskip("torch")
    check([*of_samples(), ELEMENTS[0]], odd.TENSORS, odd.REFUSED_TENSORS, workers=1)


@pytest.mark.fault(
    "a group function returns a list of the wrong length or with odd elements",
    sees="`error` for the whole call or for those elements",
)
def test_row_12_lists() -> None:
    """A call that returns what is no list of the right length fails as a whole, and alone."""
    with Dispatcher(LISTS, workers=2, max_failure_rate=1.0) as made:
        for kind in [*odd.LISTS, *odd.BAD_LISTS]:
            result = made.score(prompts=["p"] * 4, completions=[kind] * 4, num_generations=2)
            for function in range(len(result.functions)):
                if kind in odd.LISTS:
                    assert result.rewards[:, :, function].tolist() == [[1.0, 1.0]] * 2, (kind, function)
                    continue
                for sample in range(4):
                    check_error(result, sample, function, odd.BAD_LISTS[kind][1])


@pytest.mark.fault(
    "a sync function returns a coroutine",
    sees='its value, and a warning that `lane="asyncio"` is the place for it',
)
@pytest.mark.filterwarnings("always")
def test_row_12_a_coroutine_from_a_sync_function(capfd: pytest.CaptureFixture[str], recwarn: Any) -> None:
    """Awaited where it is, with a warning to say where it belongs."""
    functions = [
        decorate(function, name=f"{lane} {kind}", lane=lane)
        for lane in ("process", "thread", "asyncio")
        for kind, decorate, function in (("sample", reward, odd.later), ("group", group_reward, odd.all_later))
    ]
    with Dispatcher(functions, workers=1) as made:
        result = made.score(completions=["1", "2", "3", "4"], num_generations=2)
    assert result.rewards.reshape(4, 6).tolist() == [[float(value)] * 6 for value in (1, 2, 3, 4)]
    reported = capfd.readouterr().err + "".join(
        str(w.message) for w in recwarn if issubclass(w.category, GuerdonWarning)
    )
    for name in result.functions:
        found = re.search(rf"'{name}' is not an async function.*lane='asyncio'", reported)
        assert bool(found) != name.startswith("asyncio"), reported


def test_row_12_a_coroutine_from_a_coroutine_is_no_reward() -> None:
    with Dispatcher([reward(odd.twice)]) as made:
        result = made.score(completions=["1"])
    check_error(result, 0, 0, "coroutine")


def test_row_12_extra_fields_of_a_dict_are_kept() -> None:
    with Dispatcher(of_samples()[:3], workers=1) as made:
        result = made.score(completions=["score and more", "float", "score none"])
    for name in result.functions:
        assert result.extra[f"{name}/why"] == ["because", None, "unsure"]
        assert result.extra[f"{name}/3"] == [[1, 2], None, None]


def test_values_load_neither_numpy_nor_torch_where_a_function_does_not() -> None:
    """A worker that loaded torch to look at a float would be slow to start and large."""

    def loaded(completion: str) -> float:
        return float("numpy" in sys.modules or "torch" in sys.modules)

    with Dispatcher([reward(loaded)], workers=1) as made:
        assert made.score(completions=["a"]).rewards.ravel().tolist() == [0.0]
