"""Results: arrays, totals, advantages, unscorable samples, failures."""

from __future__ import annotations

import math
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from guerdon import Failure, RewardBatch, Status, reward
from guerdon._batch.result_builder import ResultBuilder
from guerdon._functions.build import spec_of
from guerdon._functions.spec import FunctionSpec

NAN = math.nan
LARGEST = np.finfo(np.float32).max


class FakeBatch:
    """A finished batch with the cells that a test asks for."""

    def __init__(
        self, rewards: Any, status: Any = None, failures: Any = None, records: Any = None, extra: Any = None
    ) -> None:
        self._rewards = np.asarray(rewards, np.float32)
        default = np.where(np.isnan(self._rewards), Status.ERROR, Status.OK)
        self._status = np.asarray(default if status is None else status, np.uint8)
        self._failures = failures
        self._records = records or {}
        self._extra = extra or {}
        self.elapsed_s = self.tail_s = 0.5

    def rewards(self) -> Any:
        return self._rewards

    def status(self) -> Any:
        return self._status

    def attempts(self) -> Any:
        return np.ones(self._rewards.shape, np.uint16)

    def queue_s(self) -> Any:
        return np.zeros(self._rewards.shape)

    run_s = queue_s

    def timings(self, function: int) -> dict[str, float]:
        return {"run_p50_s": 0.1 * function}

    def records(self, function: int) -> list[tuple[int, list[int], bytes]]:
        return self._records.get(function, [])  # type: ignore[no-any-return]

    def extra(self, function: int) -> list[tuple[int, str, Any]]:
        return self._extra.get(function, [])  # type: ignore[no-any-return]

    def failures(self) -> list[Any]:
        if self._failures is not None:
            return self._failures  # type: ignore[no-any-return]
        _, generations, _ = self._status.shape
        return [
            (int(p * generations + g), int(f), int(self._status[p, g, f]), "ValueError: bad", "Traceback", 1, 0.1, 0.2)
            for p, g, f in zip(*np.nonzero(self._status >= Status.TIMEOUT), strict=True)
        ]


def make(
    rewards: Any, status: Any = None, *, weights: Any = None, incomplete: str = "drop", **kwargs: Any
) -> RewardBatch:
    batch = FakeBatch(rewards, status, **kwargs)
    count = batch.rewards().shape[2]
    names = [f"f{index}" for index in range(count)]
    return RewardBatch(batch, names, ["sample"] * count, weights or [1.0] * count, incomplete)  # type: ignore[arg-type]


def specs(count: int = 1, **options: Any) -> list[FunctionSpec]:
    return [spec_of(reward(lambda completion: 1.0, name=f"f{index}", **options)) for index in range(count)]


# --- arrays, total


def test_arrays_have_a_cell_per_prompt_completion_and_function() -> None:
    result = make(np.arange(12).reshape(2, 3, 2))
    for array in (result.rewards, result.status, result.attempts, result.queue_s, result.run_s):
        assert array.shape == (2, 3, 2)
    assert result.rewards.dtype == np.float32
    assert result.status.dtype == np.uint8
    assert len(result) == 6


def test_total_leaves_out_the_samples_of_failed_cells_and_rewards_keep_them() -> None:
    result = make([[[1, 2], [NAN, 2], [3, 4]]], weights=[1.0, 0.5])
    np.testing.assert_array_equal(result.total, np.float32([[2, NAN, 5]]))
    np.testing.assert_array_equal(result.rewards, np.float32([[[1, 2], [NAN, 2], [3, 4]]]))
    np.testing.assert_array_equal(result.unscorable, [[False, True, False]])


def test_an_abstained_cell_leaves_its_sample_scorable() -> None:
    result = make([[[1, 2], [NAN, 2], [NAN, NAN]]], [[[0, 0], [1, 0], [1, 1]]])
    np.testing.assert_array_equal(result.total, np.float32([[3, 2, NAN]]))


def test_a_failed_cell_with_a_number_leaves_its_sample_scorable() -> None:
    result = make([[[1, 2], [-1, 2]]], [[[0, 0], [2, 0]]])
    np.testing.assert_array_equal(result.total, np.float32([[3, 1]]))


def test_partial_keep_sums_what_is_left_as_trl_does() -> None:
    result = make([[[1, 2], [NAN, 2], [NAN, NAN]]], incomplete="sum")
    np.testing.assert_array_equal(result.total, np.float32([[3, 2, NAN]]))


@pytest.mark.parametrize(
    ("cells", "weights", "expected"),
    [
        pytest.param([3e38, 3e38], [1.0, 1.0], LARGEST, id="above"),
        pytest.param([-3e38, -3e38], [1.0, 1.0], -LARGEST, id="below"),
        pytest.param([3e38, 1.0], [10.0, 1.0], LARGEST, id="a weight"),
        pytest.param([3e38, 3e38, -3e38], [1.0, 1.0, 1.0], np.float32(3e38), id="on the way alone"),
        pytest.param([3e38, -3e38], [10.0, 10.0], 0.0, id="both ways"),
        pytest.param([3e38, 3e38, NAN], [1.0, 1.0, 1.0], LARGEST, id="beside an abstention"),
    ],
)
def test_a_total_beyond_float32_is_its_largest_number(
    cells: list[float], weights: list[float], expected: float
) -> None:
    others = [1.0] * len(cells)
    status = [[[int(np.isnan(cell)) for cell in cells], [0] * len(cells)]]
    result = make([[cells, others]], status, weights=weights)
    np.testing.assert_array_equal(result.total, np.float32([[expected, sum(weights)]]))
    for scale in ("group", "batch", "none"):
        advantages = result.advantages(scale)
        assert np.isfinite(advantages).all()
        assert np.sign(advantages[0, 0]) == np.sign(expected - np.float32(sum(weights)))


def test_a_result_can_be_pickled_whole() -> None:
    result = make([[[1.0], [NAN]]], records={0: [(0, [], b'[["metric", "m", 1.0], ["fields", {"a": "b"}]]')]})
    copy = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(copy.rewards, result.rewards)
    assert copy.failures() == result.failures()
    assert copy.extra == result.extra == {"f0/a": ["b", None]}
    assert copy.metrics == {"m": [1.0]}
    assert copy.timings == {"f0": {"run_p50_s": 0.0}}
    assert copy.attempts.shape == (1, 2, 1)


def test_reports_of_a_lane_become_columns() -> None:
    extra = [(0, "said", "first try"), (0, "said", "7"), (1, "votes", [1.0, None])]
    result = make([[[1.0], [NAN]]], extra={0: extra}, records={0: [(0, [], b'[["fields", {"a": "b"}]]')]})
    assert result.extra == {"f0/a": ["b", None], "f0/said": ["7", None], "f0/votes": [None, [1.0, None]]}
    assert result.usage == {}, "none of them makes requests"


def test_torch_shares_the_memory() -> None:
    pytest.importorskip("torch")
    result = make([[[1.0], [2.0]]])
    tensor = result.to_torch()
    tensor[0, 0, 0] = 7
    assert result.rewards[0, 0, 0] == 7


# --- advantages


def trl_advantages(rewards: Any, weights: list[float], scale: str) -> Any:
    """The lines of TRL 1.16's GRPOTrainer, on the columns that it would have got."""
    torch = pytest.importorskip("torch")
    from trl.trainer.utils import nanstd

    count, generations, functions = rewards.shape
    per_function = torch.tensor(rewards, dtype=torch.float32).view(count * generations, functions)
    unscorable = torch.isnan(per_function).all(dim=1)
    total = (per_function * torch.tensor(weights, dtype=torch.float32)).nansum(dim=1)
    total[unscorable] = torch.nan
    mean = torch.nanmean(total.view(-1, generations), dim=1).repeat_interleave(generations, dim=0)
    if scale in ("group", "none"):
        std = nanstd(total.view(-1, generations), dim=1).repeat_interleave(generations, dim=0)
        if generations == 1:
            std = torch.zeros_like(total)
    else:
        std = nanstd(total).expand_as(total) if total.numel() > 1 else torch.zeros_like(total)
    advantages = total - mean
    if scale != "none":
        advantages = advantages / (std + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0).view(count, generations).numpy()


# Multiples of 1/8: the float32 mean of equal numbers is exact, so that 0 / 1e-4 is 0 here and
# there.
numbers = st.one_of(st.integers(-64, 64).map(lambda n: n / 8), st.just(NAN))


@settings(max_examples=60, deadline=None)
@given(
    rewards=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)), elements=numbers
    ),
    scale=st.sampled_from(["group", "batch", "none"]),
)
def test_advantages_are_trls(rewards: Any, scale: Any) -> None:
    weights = [1.0, 0.5, 0.25][: rewards.shape[2]]
    result = make(rewards, np.where(np.isnan(rewards), Status.ABSTAINED, Status.OK), weights=weights)
    np.testing.assert_allclose(result.advantages(scale), trl_advantages(rewards, weights, scale), rtol=1e-4, atol=1e-4)


def test_row_10_advantages_leave_failed_samples_out_of_the_baseline() -> None:
    """The group's mean and standard deviation are the survivors', the failed sample's advantage is
    0."""
    result = make([[[1.0, 1.0], [0.0, 5.0], [0.5, NAN], [1.0, 0.0]]])
    survivors = np.array([2.0, 5.0, 1.0])
    expected = (survivors - survivors.mean()) / (survivors.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(result.advantages()[0], [expected[0], expected[1], 0.0, expected[2]], atol=1e-6)


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="'group', 'batch' or 'none'"):
        make([[[1.0]]]).advantages("global")  # type: ignore[arg-type]


# --- what a person reads


def test_failures_are_listed_anew_and_made_once() -> None:
    result = make([[[1.0], [math.nan]]], [[[Status.OK], [Status.ERROR]]])
    first = result.failures()
    assert first
    assert all(one is other for one, other in zip(first, result.failures(), strict=True))
    first.clear()
    assert result.failures()
    assert pickle.loads(pickle.dumps(result)).failures() == result.failures()


def test_failures_name_function_and_sample() -> None:
    (failure,) = make([[[1.0, 1.0], [1.0, NAN]]]).failures()
    assert failure == Failure("f1", 1, Status.ERROR, "ValueError: bad", "Traceback", 1, 0.1, 0.2)
    assert str(failure) == "'f1' on sample 1: error: ValueError: bad"


def test_to_dicts_has_a_row_per_sample() -> None:
    assert make([[[1.0, 2.0], [NAN, 3.0]]]).to_dicts() == [
        {"index": 0, "rewards": {"f0": 1.0, "f1": 2.0}, "status": {"f0": "ok", "f1": "ok"}},
        {"index": 1, "rewards": {"f0": None, "f1": 3.0}, "status": {"f0": "error", "f1": "ok"}},
    ]


def test_repr_tells_what_happened() -> None:
    assert "2 error" in repr(make([[[NAN], [NAN]]])), "no numbers"
    text = repr(make([[[1.0], [NAN]], [[3.0], [2.0]]]))
    assert "2 prompts x 2 completions x 1 functions in 0.5 s, 1 samples unscorable" in text
    assert "3 ok, 1 error" in text
    assert "f0" in text


def test_notebook_shows_a_table_of_escaped_names() -> None:
    batch = FakeBatch([[[1.0], [NAN]], [[3.0], [2.0]]])
    text = RewardBatch(batch, ["<b>"], ["sample"], [1.0], "drop")._repr_html_()  # type: ignore[arg-type]
    assert "<td>&lt;b&gt;</td><td>2</td><td>1</td><td>3 ok, 1 error</td>" in text
    assert text.count("<table>") == text.count("</table>") == 1


# --- too many failures


def cells(failed: int, samples: int, status: Status = Status.ERROR) -> RewardBatch:
    rewards = np.ones((samples, 1, 1), np.float32)
    rewards[:failed] = NAN
    return make(rewards, np.where(np.isnan(rewards), status, Status.OK))


def test_to_pandas_has_a_row_for_each_cell() -> None:
    pandas = pytest.importorskip("pandas")
    rewards = [[[1.0, NAN], [2.0, 4.0]]]
    status = [[[Status.OK, Status.TIMEOUT], [Status.OK, Status.OK]]]
    failed = [(0, 1, int(Status.TIMEOUT), "no answer", None, 3, 0.0, 30.0)]
    frame = make(np.array(rewards), np.array(status), failures=failed).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    columns = ["sample", "group", "function", "reward", "status", "reason", "attempts", "queue_s", "run_s"]
    assert list(frame.columns) == columns
    assert frame["sample"].tolist() == [0, 0, 1, 1]
    assert frame["group"].tolist() == [0, 0, 0, 0]
    assert frame["function"].tolist() == ["f0", "f1"] * 2
    np.testing.assert_array_equal(frame["reward"], np.array([1, NAN, 2, 4], np.float32))
    assert frame["status"].tolist() == ["ok", "timeout", "ok", "ok"]
    assert [None if one != one else one for one in frame["reason"]] == [None, "no answer", None, None]
    assert frame.groupby("function")["reward"].mean().to_dict() == {"f0": 1.5, "f1": 4.0}


@pytest.mark.parametrize(("module", "method"), [("pandas", "to_pandas"), ("torch", "to_torch")])
def test_without_the_library_it_says_what_to_install(module: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = make([[[1.0]]])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{method}\(\) needs {module}: pip install {module}"):
        getattr(result, method)()


def test_an_empty_batch_is_an_empty_table() -> None:
    pandas = pytest.importorskip("pandas")
    table = make(np.zeros((0, 2, 1))).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert (len(table), list(table.columns)[:3]) == (0, ["sample", "group", "function"])


def of_times(reason: str, seconds: float, attempts: int) -> RewardBatch:
    """Eight samples that failed with this reason, and have rewards all the same."""
    failed = [(sample, 0, int(Status.TIMEOUT), reason, None, attempts, 0.0, seconds) for sample in range(8)]
    return make(np.ones((8, 1, 1)), np.zeros((8, 1, 1)), failures=failed)


@pytest.mark.parametrize(
    ("result", "options", "limit", "says"),
    [
        (
            cells(33, 64),
            {},
            0.5,
            [
                "reward function 'f0' failed on 33 of 64 samples (limit 50 %): 33 error.",
                "First: sample 0: ValueError: bad (after 1 attempt).",
            ],
        ),
        (cells(7, 8), {}, 0.5, None),
        (cells(63, 64), {}, 0.99, None),
        (cells(8, 8), {}, 0.99, ["failed on 8 of 8 samples (limit 99 %)"]),
        (cells(64, 64), {"max_failure_rate": 1.0}, 0.5, None),
        (cells(1, 64), {"max_failure_rate": 0.0}, 0.5, ["failed on 1 of 64"]),
        (cells(1, 2), {"on_failure": "raise"}, 0.5, ['on_failure="raise"', "or choose another `on_failure`."]),
        (make(np.full((8, 1, 2), NAN)), {}, 0.5, ["'f0'", "'f1'"]),
        (
            of_times("timeout", 30.0, 3),
            {"timeout": 30},
            0.5,
            ["8 timeout (30 s)", "(after 3 attempts). Raise `timeout`"],
        ),
        *(
            (of_times(reason, 1.0, 1), {"timeout": 30}, 0.5, [f"8 timeout ({reason.partition('; ')[0]}).\n", advice])
            for reason, advice in (
                ("total timeout", "the function's `total_timeout`"),
                ("total timeout; last error: judge.local answered 500", "the function's `total_timeout`"),
                ("group timeout", "Raise `group_timeout`"),
                ("batch timeout", "Raise `batch_timeout`"),
            )
        ),
    ],
)
def test_a_first_batch_is_judged_by_its_failures(
    result: RewardBatch, options: dict[str, Any], limit: float, says: list[str] | None
) -> None:
    functions = tuple(specs(result.rewards.shape[2], **options))
    message = ResultBuilder(functions, (1.0,) * len(functions), "drop", limit).judge(result)
    assert (message is None) == (says is None)
    for part in says or ():
        assert part in str(message)
    if "timeout" in options and "timeout (30 s)" not in str(says):
        assert "30 s" not in str(message)
