"""A caller's columns become lists of one value per sample."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from guerdon import DataError
from guerdon._batch.columns import Single, as_values, collect, plain_text

# --- lists of any kind


def lists() -> list[tuple[str, Callable[[], Any], list[Any]]]:
    def torch_ints() -> Any:
        torch = pytest.importorskip("torch")
        return torch.tensor([1, 2])

    def torch_rows() -> Any:
        torch = pytest.importorskip("torch")
        return torch.tensor([[1, 2], [3, 4]])

    def series() -> Any:
        return pytest.importorskip("pandas").Series([1, 2], index=[5, 9])

    def arrow() -> Any:
        return pytest.importorskip("pyarrow").array([1, 2])

    def datasets_column() -> Any:
        datasets = pytest.importorskip("datasets")
        return datasets.Dataset.from_dict({"x": [1, 2]})["x"]

    return [
        ("list", lambda: [1, 2], [1, 2]),
        ("tuple", lambda: (1, 2), [1, 2]),
        ("numpy", lambda: np.array([1, 2]), [1, 2]),
        ("numpy text", lambda: np.array(["a", "b"]), ["a", "b"]),
        ("array", lambda: array.array("i", [1, 2]), [1, 2]),
        ("range", lambda: range(1, 3), [1, 2]),
        ("torch", torch_ints, [1, 2]),
        ("torch rows", torch_rows, [[1, 2], [3, 4]]),
        ("pandas", series, [1, 2]),
        ("arrow", arrow, [1, 2]),
        ("datasets", datasets_column, [1, 2]),
    ]


@pytest.mark.parametrize(("make", "expected"), [c[1:] for c in lists()], ids=[c[0] for c in lists()])
def test_every_kind_of_list_becomes_one_value_per_sample(make: Callable[[], Any], expected: list[Any]) -> None:
    values = as_values("x", make(), 2)
    assert type(values) is list
    assert [v.tolist() if hasattr(v, "tolist") else v for v in values] == expected


def test_rows_of_an_array_stay_arrays() -> None:
    rows = as_values("x", np.arange(4).reshape(2, 2), 2)
    assert all(isinstance(row, np.ndarray) for row in rows)


def test_a_row_of_a_tensor_does_not_carry_the_whole_tensor() -> None:
    torch = pytest.importorskip("torch")
    (row, _) = as_values("x", torch.zeros(2, 3), 2)
    assert row.untyped_storage().nbytes() == 12  # type: ignore[attr-defined]


def test_the_lists_are_ours() -> None:
    mine = ["a", "b"]
    data = collect(None, mine, None, {"answer": mine})
    mine[0] = "changed"
    assert data.own["completions"] == ["a", "b"]
    assert data.dataset["answer"] == ["a", "b"]


@pytest.mark.parametrize(
    "value", ["text", b"bytes", 3, None, {"a": 1}, {1, 2}, np.float64(1.0), np.array(1.0), iter([1, 2]), list]
)
def test_other_values_than_lists_are_refused(value: object) -> None:
    with pytest.raises(DataError, match=r"'answer' is an? .* one value per sample"):
        collect(None, ["a", "b"], None, {"answer": value})


def test_scalar_columns_apply_to_every_sample_if_a_trainer_allows_it() -> None:
    data = collect(None, ["a", "b"], None, {"config": {"a": 1}}, singles=True)
    assert data.dataset["config"] == Single({"a": 1})


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="'answer' has 3 values, but there are 2 completions"):
        collect(None, ["a", "b"], None, {"answer": [1, 2, 3]})
    with pytest.raises(DataError, match="'prompts' has 1 value, but there are 2 completions"):
        collect(["p"], ["a", "b"], None, {})


def test_one_value_per_prompt_is_refused_with_how_to_repeat_it() -> None:
    with pytest.raises(DataError, match=r"repeat each 2 times: \[one for one in answer for _ in range\(2\)\]"):
        collect(None, ["a", "b", "c", "d"], None, {"answer": [1, 2]})
    for values in ([], [1, 2, 3], [1, 2, 3, 4, 5]):
        with pytest.raises(DataError, match=r"give one value per sample$"):
            collect(None, ["a", "b", "c", "d"], None, {"answer": values})


def test_no_samples_are_refused() -> None:
    with pytest.raises(DataError, match="no samples"):
        collect([], [], None, {})
    with pytest.raises(DataError, match="no completions"):
        collect([], None, None, {})


def test_recorders_of_the_trainer_are_no_columns() -> None:
    assert collect(None, ["a"], None, {"log_extra": print, "log_metric": print}).dataset == {}


# --- text


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ([], ""),
        ([{"role": "assistant", "content": "one"}], "one"),
        ([{"role": "user", "content": "q"}], ""),
        ([{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}], "two"),
        ([{"role": "assistant", "content": "one"}, {"role": "tool", "content": "result"}], "one"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([{"role": "assistant"}], ""),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "ab"),
        ([{"role": "assistant", "content": [{"type": "image"}, {"type": "text", "text": "b"}, "c"]}], "bc"),
    ],
)
def test_text_is_the_last_assistant_message(completion: object, text: str) -> None:
    assert plain_text(completion, 0) == text


@pytest.mark.parametrize("completion", [3, None, {"role": "assistant", "content": "a"}, ["a"], [["a"]]])
def test_a_completion_that_is_neither_text_nor_messages_is_refused(completion: object) -> None:
    with pytest.raises(DataError, match="sample 4"):
        plain_text(completion, 4)
