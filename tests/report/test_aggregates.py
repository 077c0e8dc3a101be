"""The figures of a report against plain references, over random journals, and the moments that they
are made of against exact ones."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon._insight.journal.parts import find_parts
from guerdon._insight.journal.selection import Selection
from guerdon._insight.report import moments
from guerdon._insight.report import survey as survey_module
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.html import render
from guerdon._insight.report.moments import Moments, PairMoments, correlations
from guerdon._insight.report.summary import summarise
from guerdon.errors import DataError
from tests.journal_files import row, table, training, write_journal, write_open_part, write_part
from tests.report.conftest import figures

pd = pytest.importorskip("pandas")

STATUSES = ["ok", "ok", "ok", "abstained", "timeout", "error", "skipped"]
VALUES = st.sampled_from([0.0, 1.0, 0.5, -2.0, 1e6, 0.1, None])


@st.composite
def journals(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A small journal: up to six batches of two groups, three functions, each with its own luck."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    generations = draw(st.integers(1, 4))
    with_steps = draw(st.booleans())
    rows = []
    for batch in range(draw(st.integers(1, 6))):
        for rank in range(draw(st.integers(1, 2))):
            for sample in range(2 * generations):
                for name in names:
                    status = draw(st.sampled_from(STATUSES))
                    value = draw(VALUES) if status == "ok" else None
                    reward = value if status == "ok" else draw(st.sampled_from([None, 0.0]))
                    rows.append(
                        row(
                            batch=batch,
                            step=batch * 3 if with_steps else None,
                            rank=rank,
                            group=sample // generations,
                            sample=sample,
                            function=name,
                            status=status,
                            value=value,
                            reward=reward,
                            weight=draw(st.sampled_from([1.0, 0.5, 0.0, -1.0])),
                            run_s=draw(st.floats(1e-6, 1e4)),
                            queue_s=draw(st.floats(1e-6, 10)),
                            attempts=draw(st.integers(0, 3)),
                            cost=draw(st.sampled_from([None, 0.25])),
                            reason=f"failed at {sample}" if status in ("timeout", "error") else None,
                        )
                    )
    return rows


def close(one: float | None, other: float) -> bool:
    if one is None:
        return math.isnan(other)
    return one == pytest.approx(other, rel=1e-6, abs=1e-6)


@settings(max_examples=max(1, settings().max_examples // 10), deadline=None)
@given(rows=journals(), parts=st.integers(1, 4))
def test_figures_are_those_of_pandas(rows: list[dict[str, Any]], parts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = figures(write_journal(Path(folder), rows, parts=parts))
    frame = pd.DataFrame(rows)
    frame["reward"] = frame["reward"].astype(float).astype(np.float32).astype(float)
    assert found["rows"] == len(frame)
    assert found["axis"]["kind"] == ("batch" if frame["step"].isna().all() else "step")
    assert list(found["functions"]) == list(dict.fromkeys(frame["function"]))
    for name, mine in frame.groupby("function"):
        each = found["functions"][name]
        rewards = mine["reward"].dropna()
        assert each["rows"] == len(mine)
        assert each["rewards"] == len(rewards)
        assert close(each["mean"], rewards.mean() if len(rewards) else math.nan)
        assert close(each["std"], rewards.std() if len(rewards) > 1 else math.nan)
        assert close(each["min"], rewards.min() if len(rewards) else math.nan)
        assert close(each["max"], rewards.max() if len(rewards) else math.nan)
        assert each["status"] == mine["status"].value_counts().to_dict()
        assert close(each["failed_share"], mine["status"].isin(["timeout", "error"]).mean())
        assert close(each["cost"], mine["cost"].astype(float).sum())
        assert sum(each["histogram"]["counts"]) == len(rewards)
        if each["histogram"].get("values"):
            counts = dict(zip(each["histogram"]["values"], each["histogram"]["counts"], strict=True))
            expected = rewards.round(6).value_counts().to_dict()
            assert {round(value, 6): count for value, count in counts.items()} == expected
        axis = found["axis"]["first"]
        by_step = mine.assign(at=mine[found["axis"]["kind"]]).groupby("at")["reward"]
        for at, mean in by_step.mean().items():
            assert close(each["over_time"]["mean"][axis.index(at)], mean)
        check_times(each, mine)
        check_spread(each, mine.groupby(["rank", "batch", "group"])["reward"])
    check_totals_and_correlations(found, frame)


def check_times(each: dict[str, Any], mine: pd.DataFrame) -> None:
    called = mine[mine["attempts"] > 0]
    for name in ("run_s", "queue_s"):
        for label, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            if called.empty:
                assert each[name][label] is None
                continue
            exact = np.quantile(called[name], share, method="inverted_cdf")
            assert each[name][label] == pytest.approx(exact, rel=0.061)


def check_spread(each: dict[str, Any], groups: Any) -> None:
    several = [rewards.dropna() for _, rewards in groups if rewards.notna().sum() >= 2]
    same = [rewards for rewards in several if rewards.min() == rewards.max()]
    assert each["groups"] == len(several)
    assert each["zero_spread"] == len(same)


def check_totals_and_correlations(found: dict[str, Any], frame: pd.DataFrame) -> None:
    wide = frame.pivot(index=["rank", "batch", "group", "sample"], columns="function", values="reward")
    weights = frame.pivot(index=["rank", "batch", "group", "sample"], columns="function", values="weight")
    total = (wide * weights).sum(axis=1, min_count=1)
    frame["failed"] = frame["status"].isin(["timeout", "error"]) & frame["reward"].isna()
    total[frame.groupby(["rank", "batch", "group", "sample"])["failed"].any()] = np.nan
    assert found["total"]["rewards"] == total.notna().sum()
    assert close(found["total"]["mean"], total.mean())
    by_group = [each.dropna() for _, each in total.groupby(["rank", "batch", "group"]) if each.notna().sum() >= 2]
    assert found["total"]["groups"] == len(by_group)
    assert found["total"]["zero_spread"] == sum(np.ptp(each) <= 1e-6 * max(1, abs(each.max())) for each in by_group)
    names = found["correlation"]["functions"]
    expected = wide[names].corr(min_periods=3)
    for one, name in enumerate(names):
        for other in range(one):
            r = found["correlation"]["matrix"][one][other]
            exact = expected.loc[name, names[other]]
            assert (r is None and math.isnan(exact)) or r == pytest.approx(exact, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-50, 500), min_size=1, max_size=300, unique=True))
def test_each_step_has_one_bucket_in_order(steps: list[int]) -> None:
    seen = survey_module._Steps()
    seen.add(np.array(sorted(steps)))
    axis = seen.axis("step", 12)
    assert len(axis) <= 12
    buckets = axis.buckets(np.array(sorted(steps)))
    assert (np.diff(buckets) >= 0).all()
    assert set(buckets.tolist()) == set(range(len(axis)))
    for step, bucket in zip(sorted(steps), buckets.tolist(), strict=True):
        assert axis.first[bucket] <= step <= axis.last[bucket]


def test_the_truths_of_a_run_are_found(tmp_path: Path) -> None:
    found = figures(write_journal(tmp_path, training(), parts=3))
    functions = found["functions"]
    assert found["ranks"] == {"0": 6400, "1": 6400}
    assert functions["careful"]["zero_spread_share"] == 1
    assert functions["format"]["zero_spread_share"] == pytest.approx(0.625)
    assert [each["version"][0] for each in functions["format"]["versions"]] == ["a", "b"]
    assert functions["format"]["versions"][1]["first"] == 20
    names = found["correlation"]["functions"]
    one, other = names.index("correct"), names.index("correct_strict")
    assert found["correlation"]["matrix"][one][other] == pytest.approx(1)
    timeouts, errors = found["failures"]
    assert (timeouts["function"], timeouts["status"], timeouts["first"], timeouts["last"]) == (
        "quality",
        "timeout",
        10,
        19,
    )
    assert errors["count"] == 26  # their reasons differ only in a number
    assert functions["quality"]["cost"] == pytest.approx(0.001 * functions["quality"]["status"]["ok"])
    assert {each["function"] for each in found["slowest"]} == {"quality"}


@pytest.mark.parametrize(("samples", "size", "most_held", "chunk"), [(8, 4, 1 << 20, 7), (400, 4, 10, 30)])
def test_rows_of_a_group_are_found_across_record_batches_and_in_a_huge_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: int, size: int, most_held: int, chunk: int
) -> None:
    monkeypatch.setattr("guerdon._insight.report.groups._MOST_HELD", most_held)
    rows = [
        row(
            batch=place // samples,
            group=place % samples // size,
            sample=place % samples,
            value=float(place // size % 2),
        )
        for place in range(600 // samples * samples)
    ]
    write_open_part(tmp_path, table(rows), chunk=chunk)
    found = figures(tmp_path, recover=False)["functions"]["correct"]
    assert (found["groups"], found["zero_spread"]) == (len(rows) // size, len(rows) // size)


def test_a_part_that_is_being_written_counts_up_to_its_last_whole_message(tmp_path: Path) -> None:
    rows = [row(sample=place) for place in range(50)]
    write_part(tmp_path, table(rows[:20]))
    write_open_part(tmp_path, table(rows[20:]), part=1, cut=9, chunk=10)
    found = figures(tmp_path, recover=False)
    assert (found["rows"], found["parts"], found["open_parts"]) == (40, 2, 1)
    assert found["notes"] == []


def test_a_part_that_is_finished_counts_once(tmp_path: Path) -> None:
    rows = table([row(sample=place) for place in range(5)])
    opened = write_open_part(tmp_path, rows)
    journal = find_parts(tmp_path, recover=False)
    write_part(tmp_path, rows)
    assert figures(tmp_path)["rows"] == 5
    opened.unlink(missing_ok=True)
    assert aggregates(summarise(journal))["rows"] == 5, "the stream was there when the parts were listed"


def without_column(path: Path, name: str) -> Path:
    """The pages of a column become zeros."""
    content, metadata = path.read_bytes(), pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(place) for place in range(metadata.num_columns)]
        chunk = next(each for each in columns if each.path_in_schema == name)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        content = content[:start] + bytes(chunk.total_compressed_size) + content[start + chunk.total_compressed_size :]
    path.write_bytes(content)
    return path


@pytest.mark.fault(
    "pages of a column that only the figures need are damaged", sees="the other rows, and a note that names the file"
)
def test_a_function_whose_rows_are_damaged_has_none(tmp_path: Path) -> None:
    write_part(tmp_path, table([row()]))
    damaged = without_column(write_part(tmp_path, table([row(function="other")]), part=1), "run_s")
    found = figures(tmp_path)
    assert found["rows"] == 1
    assert (found["functions"]["other"]["rows"], found["functions"]["other"]["failed_share"]) == (0, None)
    [note] = found["notes"]
    assert damaged.name in note
    page = render(summarise(find_parts(tmp_path)), found, "1")
    assert "other" in page


def test_a_journal_of_which_no_row_can_be_read_is_refused(tmp_path: Path) -> None:
    damaged = without_column(write_part(tmp_path, table([row()])), "run_s")
    with pytest.raises(DataError, match=f"no row of the journal .* can be read.*{damaged.name}"):
        figures(tmp_path)


def test_runs_are_chosen(tmp_path: Path) -> None:
    write_journal(tmp_path, [*training(steps=2), *(row(run="other", sample=place, value=9.0) for place in range(3))])
    assert figures(tmp_path)["runs"] == {"other": 3, "run-1": 640}
    found = figures(tmp_path, selection=Selection(runs=["other"]))
    assert found["rows"] == 3
    assert list(found["functions"]) == ["correct"]


def many_functions(count: int) -> Sequence[dict[str, Any]]:
    return [
        row(function=f"f{number:03}", batch=batch, step=batch, sample=sample, value=float(sample))
        for batch in range(3)
        for sample in range(4)
        for number in range(count)
    ]


def test_of_very_many_functions_some_are_left_out(tmp_path: Path) -> None:
    found = figures(write_journal(tmp_path, many_functions(130)))
    assert len(found["functions"]) == survey_module.MOST_FUNCTIONS
    assert len(found["left_out_functions"]) == 30
    assert found["correlation"]["matrix"][0][99] == pytest.approx(1)


def test_odd_columns_are_read(tmp_path: Path) -> None:
    """Weights and times that are null, an unknown status, rewards that are infinite."""
    rows = [
        row(sample=0, weight=None, queue_s=None, run_s=None),
        row(sample=1, status="unheard", value=None),
        row(sample=2, reward=math.inf),
        row(sample=3, version=None, function="other"),
    ]
    found = figures(write_journal(tmp_path, rows))
    assert found["functions"]["correct"]["status"] == {"ok": 2, "other": 1}
    assert found["functions"]["correct"]["rewards"] == 1


def test_a_table_that_someone_made_of_a_journal_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    frame = pd.DataFrame(training(steps=2))
    frame.drop(columns=["traceback", "extra", "version", "weight"]).to_parquet(path)
    assert figures(path)["rows"] == len(frame)


def test_a_weight_of_0_of_a_function_without_rewards_is_no_fault(tmp_path: Path) -> None:
    rows = [row(function="none", weight=0.0, status="abstained", value=None, reward=None), row()]
    assert figures(write_journal(tmp_path, rows))["total"]["rewards"] == 1


def test_totals_are_those_of_the_dispatchers_option(tmp_path: Path) -> None:
    """A sample on which a function fails has no total, or by "sum" that of the others."""
    rows = [row(sample=sample, function=name) for sample in range(4) for name in ("correct", "judge")]
    rows[-1] |= {"status": "timeout", "value": None, "reward": None}
    dropped = figures(write_journal(tmp_path / "drop", rows, dispatcher={"incomplete": "drop"}))["total"]
    summed = figures(write_journal(tmp_path / "sum", rows, dispatcher={"incomplete": "sum"}))["total"]
    assert (dropped["rewards"], dropped["mean"], dropped["zero_spread"]) == (3, 2.0, 1)
    assert (summed["rewards"], summed["mean"], summed["zero_spread"]) == (4, 1.75, 0)


def test_a_crash_is_shown_without_the_frames_of_the_worker(tmp_path: Path) -> None:
    beginning = 'Fatal Python error: Segmentation fault\n  File "/home/me/rewards.py", line 7 in inner\n'
    stack = beginning + '  File "/lib/guerdon/_worker/worker.py", line 212 in _samples\n'
    rows = [row(), row(sample=1, status="crashed", reason="the worker was killed", traceback=stack)]
    found = figures(write_journal(tmp_path, rows))
    assert found["failures"][0]["examples"][0]["traceback"].rstrip() == beginning.rstrip()


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=60),
    far=st.sampled_from([0.0, 1.0, 1e6, -1e9]),
    scale=st.sampled_from([1.0, 1e-3, 1e3]),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_moments_keep_their_digits_far_from_zero(
    values: list[tuple[int, int]], far: float, scale: float, cuts: list[int]
) -> None:
    cells = np.array([cell for cell, _ in values])
    numbers = far + scale * np.array([float(number) for _, number in values])
    made = Moments((4,))
    for one, other in pairwise([0, *sorted(cuts), len(values)]):
        made.add(cells[one:other], numbers[one:other])
    for cell in range(4):
        mine = [Fraction(float(number)) for number in numbers[cells == cell]]
        assert made.count[cell] == len(mine)
        if len(mine) > 1:
            mean, std = made.over(cell)
            exact = sum(mine) / len(mine)
            variance = float(sum((each - exact) ** 2 for each in mine) / (len(mine) - 1))
            assert mean == pytest.approx(float(exact), rel=1e-15, abs=1e-12)
            assert std == pytest.approx(math.sqrt(variance), rel=1e-6, abs=1e-14 * max(1.0, abs(far)))
    assert made.over()[0] == pytest.approx(numbers.mean(), rel=1e-14, abs=1e-12)


def test_correlations_of_numbers_that_lie_close_together_are_exact() -> None:
    """A function's largest rewards are a million; most differ by little."""
    random = np.random.default_rng(0)
    x = np.where(np.arange(900) < 300, 1e6, 0.1 + 1e-7 * random.random(900))
    y = np.where(np.arange(900) < 300, np.nan, x + 1e-7 * random.random(900))
    values = np.stack([x, y, np.full(900, 0.1)], axis=1)
    pairs = PairMoments(3)
    for part in np.array_split(values, 7):
        pairs.add(part)
    r = correlations(pairs.sums)
    exact = pd.DataFrame(values[300:]).corr().to_numpy()
    assert r[0, 1] == pytest.approx(exact[0, 1], abs=1e-7)
    assert r[1, 0] == r[0, 1]
    assert 0.3 < r[0, 1] < 0.9
    assert np.isnan(r[:, 2]).all()
    assert r[0, 0] == r[1, 1] == 1


def test_rows_that_lack_different_columns_cost_no_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    random, centered = np.random.default_rng(0), Mock(wraps=moments._centered)
    monkeypatch.setattr(moments, "_centered", centered)
    values = random.random((4096, 20))
    values[random.random(values.shape) < 0.5] = np.nan
    pairs = PairMoments(20)
    pairs.add(values)
    assert centered.call_count <= 20 * 20
    np.testing.assert_allclose(correlations(pairs.sums), pd.DataFrame(values).corr().to_numpy(), atol=1e-9)
