"""``guerdon trace --html``: the page's data are the trace's, however much of it is merged."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import _native
from guerdon._timeline_page.loads import at_limit, thinned
from guerdon._timeline_page.merging import FAILED, STATUSES, merge, resolution
from guerdon._timeline_page.moment_names import shown as shown_name
from guerdon._timeline_page.recorded import INTEGERS, REALS, TEXTS, Slices, read
from guerdon.cli import main
from tests.timeline.perfetto_files import PerfettoFile, parse
from tests.timeline.test_encoding import OfficialTrace

MOST_BYTES = 3_000_000


def page_data(page: Path) -> dict[str, Any]:
    html = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def drawn(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The bars of a page, each as what it says."""
    texts, found = data["texts"], []
    for group in data["groups"]:
        for row in group["rows"]:
            for depth, columns in enumerate(row["levels"]):
                at = 0
                for place, gap in enumerate(columns["t"]):
                    at += gap
                    one = {
                        name: value[place] if isinstance(value, list) else value
                        for name, value in columns.items()
                        if name != "x"
                    }
                    more = columns["x"].get(str(place), {})
                    bar = {"track": texts[row["track"]], "depth": depth, "begin": at, "length": one["d"], **more}
                    bar |= {"name": texts[one["n"]] if one["n"] >= 0 else None, "status": data["statuses"][one["s"]]}
                    bar |= {"batch": one["b"], "sample": one["k"], "queue": one["q"]}
                    found.append(bar)
    return found


def first_time(file: PerfettoFile) -> int:
    times = [one.begin for one in file.slices] + [one[2] for one in file.instants]
    return min(times + [at for values in file.counters.values() for at, _ in values])


def facts_of(file: PerfettoFile, texts: list[str]) -> list[dict[str, Any]]:
    """What `drawn` should find, from Perfetto's own protos."""
    start, found = first_time(file), []
    renamed = {"tail_s": "tail", "reason": "reason", "call": "call"}
    for one in file.slices:
        values = one.values
        bar: dict[str, Any] = {
            "track": one.track,
            "depth": one.depth,
            "begin": one.begin - start,
            "length": -1 if one.end is None else one.end - one.begin,
            "name": one.name,
            "status": values.get("status", ""),
            "batch": values.get("batch", -1),
            "sample": values.get("sample", values.get("first sample", -1)),
            "queue": round(values["queue_s"] * 1e9) if "queue_s" in values else -1,
        }
        for key, value in values.items():
            if key in ("reason", "call"):
                bar[key] = texts.index(value)
            elif key in ("step", "samples", "groups", "calls", "failed", "attempt", "tail_s"):
                bar[renamed.get(key, key)] = round(value * 1e9) if key == "tail_s" else value
        found.append(bar)
    return found


def in_order(bars: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(bar, sort_keys=True) for bar in bars)


def test_the_bars_of_the_page_are_the_slices_of_the_trace(example: Path, example_page: Path) -> None:
    data, file = page_data(example_page), parse(example)
    assert data["unit"] == 1
    assert data["resolution"] == 0
    assert in_order(drawn(data)) == in_order(facts_of(file, data["texts"]))
    # And something of everything is there to be equal.
    assert {"ok", "error", "timeout", "crashed"} <= {bar["status"] for bar in drawn(data)}
    assert any(bar.get("attempt", 0) > 1 for bar in drawn(data))


def test_moments_and_loads_of_the_page_are_those_of_the_trace(example: Path, example_page: Path) -> None:
    data, file = page_data(example_page), parse(example)
    start, texts = first_time(file), data["texts"]
    shown = sorted((at, texts[name], texts[why] if why >= 0 else "") for _, _, at, name, why in data["moments"])
    there = [
        (at - start, shown_name(name), values.get("reason", ""))
        for _, name, at, values, _ in file.instants
        if name != "ready"
    ]
    assert shown == sorted(there)
    assert {"worker killed", "worker died", "worker restarted"} <= {name for _, name, _ in shown}
    for group in data["groups"]:
        for name, counter in group["counters"].items():
            track = f"{data['processes'][group['process']]}/{texts[group['title']]} ({group['lane']})/{name}"
            times = np.cumsum(counter["t"]).tolist()
            assert list(zip(times, counter["v"], strict=True)) == [(at - start, v) for at, v in file.counters[track]]
    (judge,) = [group for group in data["groups"] if texts[group["title"]] == "judge"]
    assert judge["full"], "twelve of twelve ran while others waited"
    lanes = [group["lane"] for group in data["groups"] if group["kind"] == "function"]
    assert lanes == ["thread", "process", "asyncio"]


def test_what_is_selected_is_drawn(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["trace", str(example), "--html", str(page), "--function", "judge", "--step", "41"]) == 0
    captured = capsys.readouterr()
    assert "1 batch" in captured.out
    assert f"Wrote {page}. Open it in a browser." in captured.err
    bars = drawn(page_data(page))
    assert {bar["name"] for bar in bars} == {"judge", "batch 2", "queue"}
    assert {bar["batch"] for bar in bars} == {2}
    both = tmp_path / "part.pftrace"
    assert main(["trace", str(example), "--html", str(page), "-o", str(both), "--last", "1s"]) == 0
    data = page_data(page)
    assert in_order(drawn(data)) == in_order(facts_of(parse(both), data["texts"]))
    assert not list(tmp_path.glob("guerdon-*"))


def test_a_part_with_nothing_in_it_is_a_page_too(example: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["trace", str(example), "--html", str(page), "--from", "9h"]) == 0
    assert "Nothing ran in that part" in page.read_text(encoding="utf-8")


def test_what_can_not_be_drawn_is_named(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "foreign").write_text("completion,reward\na,1\n" * 100)
    out = str(tmp_path / "page.html")
    for arguments, message in [
        ([str(tmp_path / "empty"), "--html", out], "is empty: nothing was written to it yet"),
        ([str(tmp_path / "foreign"), "--html", out], "it is no trace"),
        ([str(tmp_path), "--html", out], "is no file"),
        ([str(example), "--html", str(tmp_path)], "that is no file"),
        ([str(example), "--html", str(tmp_path / "no" / "page.html")], "--html"),
        ([str(example), "--html", str(example)], "that is one of the traces"),
        ([str(example), "--html", out, "-o", out], "give them two names"),
    ]:
        assert main(["trace", *arguments]) == 2
        assert message in capsys.readouterr().err
        assert not Path(out).exists()
    whole = example.read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 3])
    assert main(["trace", str(tmp_path / "cut"), "--html", out]) == 0, "a copy of a part is read as far as it goes"
    assert drawn(page_data(Path(out)))


def calls_of(count: int, rows: int, reason: str | None = None) -> OfficialTrace:
    """So many calls one after the other on some workers, every hundredth an error."""
    official = OfficialTrace()
    start = 10**15
    official.describe(2, "workers", 1)
    for row in range(rows):
        official.describe(10 + row, f"worker {row}", 2)
    for number in range(count // rows):
        at = start + number * 1_000_000
        for row in range(rows):
            values: dict[str, Any] = {"batch": number // 64, "sample": number % 64, "queue_s": 0.25}
            values["status"] = "error" if (number + row) % 100 == 0 else "ok"
            if reason is not None:
                values["reason"] = f"{number} {row} {reason}"
            official.event(at, 1, 10 + row, ("reward", values, [number + 1]))
        for row in range(rows):
            official.event(at + 400_000 + 1000 * row, 2, 10 + row)
    return official


@pytest.mark.parametrize("calls", [5_000, pytest.param(25_000, marks=pytest.mark.soak)])
def test_very_many_events_are_a_small_page_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str], calls: int) -> None:
    """Of twenty ranks, as `guerdon trace run-r*.pftrace` brings them together: up to a million
    events."""
    one = tmp_path / "run-r0.pftrace"
    one.write_bytes(calls_of(calls, rows=25).trace.SerializeToString())
    page = tmp_path / "page.html"
    begun = time.monotonic()
    assert main(["trace", *[str(one)] * 20, "--html", str(page), "--json"]) == 0
    assert time.monotonic() - begun < 120  # 7 s alone
    summary = json.loads(capsys.readouterr().out)
    assert summary["slices"] == 20 * calls
    assert page.stat().st_size < MOST_BYTES
    data = page_data(page)
    bars = drawn(data)
    assert sum(bar.get("count", 1) for bar in bars) == 20 * calls
    failed = sum(bar["bad"] if "bad" in bar else int("count" not in bar and bar["status"] == "error") for bar in bars)
    assert failed == summary["functions"]["reward"]["failed"] == 20 * calls // 100
    assert len({bar["track"] for bar in bars}) == 25
    assert len(data["groups"]) == 20
    shown = page.read_text(encoding="utf-8")
    assert f"{20 * calls:,} slices are {len(bars):,} bars" in shown


def test_long_reasons_make_no_large_page(tmp_path: Path) -> None:
    trace, page = tmp_path / "run.pftrace", tmp_path / "page.html"
    trace.write_bytes(calls_of(15_000, rows=4, reason="<&" * 110).trace.SerializeToString())
    assert main(["trace", str(trace), "--html", str(page)]) == 0
    assert page.stat().st_size < MOST_BYTES
    assert sum(bar.get("count", 1) for bar in drawn(page_data(page))) == 15_000


def test_many_tracks_and_moments_are_cut_and_counted(tmp_path: Path) -> None:
    official = OfficialTrace()
    official.describe(2, "workers", 1)
    for row in range(2500):
        official.describe(10 + row, f"worker {row}", 2)
        official.event(10**15 + row, 1, 10 + row, ("reward", {"status": "ok"}, []))
        official.event(10**15 + row, 3, 10 + row, ("worker killed", {"reason": "<b>late</b>"}, []))
        official.event(10**15 + row + 900, 2, 10 + row)
    trace, page = tmp_path / "run.pftrace", tmp_path / "page.html"
    trace.write_bytes(official.trace.SerializeToString())
    assert main(["trace", str(trace), "--html", str(page)]) == 0
    data, shown = page_data(page), page.read_text(encoding="utf-8")
    assert sum(len(group["rows"]) for group in data["groups"]) == 2000
    assert len(data["moments"]) == 2000
    assert "500 tracks with little on them are left out" in shown
    assert "500 of the kills and other moments are left out" in shown
    assert page.stat().st_size < MOST_BYTES


def test_hostile_texts_are_data_in_the_page(tmp_path: Path) -> None:
    official = OfficialTrace()
    hostile = "</script><img src=x onerror=window.hacked=1>\u202e$title\0"
    official.describe(2, f"{hostile} (thread)", 1)
    official.describe(3, f"batches{hostile}", 2)
    official.event(10**15, 1, 3, (hostile, {"status": hostile, "reason": hostile, "batch": 1}, []))
    official.event(10**15, 3, 3, (hostile, {"reason": hostile}, []))
    official.event(10**15 + 5, 2, 3)
    trace, page = tmp_path / "run.pftrace", tmp_path / "page.html"
    trace.write_bytes(official.trace.SerializeToString())
    assert main(["trace", str(trace), "--html", str(page)]) == 0
    shown = page.read_text(encoding="utf-8")
    assert "<img" not in shown
    assert "\u202e" not in shown
    assert shown.count("</script>") == 2
    (bar,) = drawn(page_data(page))
    assert bar["name"].startswith("</script><img")
    assert bar["status"] == ""


lengths = st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 5000), st.integers(0, 8)), max_size=80)


@settings(max_examples=100)
@given(st.lists(lengths, max_size=4), st.integers(1, 4000), st.integers(1, 100))
def test_merging_keeps_sums_and_long_slices(rows: list[Any], resolution_ns: int, most: int) -> None:
    found, now = [], 0
    for row, slices in enumerate(rows):
        now = 0
        for gap, length, status in slices:
            found.append((row, now + gap, now + gap + length, status))
            now += gap + length
    table = np.array(found, np.int64).reshape(-1, 4)
    count = len(table)
    facts: dict[str, Any] = {name: np.full(count, -1, np.int64) for name in (*INTEGERS, *TEXTS)}
    facts |= {name: np.full(count, np.nan) for name in REALS}
    zeros = np.zeros(count, np.int64)
    slices = Slices(table[:, 0], zeros, table[:, 1], table[:, 2], zeros, facts)
    bars = merge(slices, table[:, 3], resolution_ns)
    assert bars.count.sum() == count
    assert bars.busy_ns.sum() == (table[:, 2] - table[:, 1]).sum()
    assert bars.failed.sum() == sum(STATUSES[status] in FAILED for status in table[:, 3])
    length = bars.end - bars.begin
    assert (bars.longest_ns <= length).all()
    assert (length[bars.count > 1] < 2 * resolution_ns).all()
    assert (table[:, 2] - table[:, 1] >= resolution_ns).sum() <= (bars.count == 1).sum()
    for row in range(len(rows)):
        of_row = bars.track == row
        assert (bars.end[of_row][:-1] <= bars.begin[of_row][1:]).all()
    chosen = resolution(slices, int(table[:, 2].max(initial=0)), most)
    assert chosen > 0 or count <= most


counter = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 5)), min_size=1, max_size=40, unique_by=lambda one: one[0]
)


def as_counter(values: list[tuple[int, int]]) -> Any:
    table = np.array(sorted(values), np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@given(counter, counter, counter)
def test_a_function_is_at_its_limit_when_calls_wait_and_as_many_run_as_may(
    flying: list[tuple[int, int]], limit: list[tuple[int, int]], queued: list[tuple[int, int]]
) -> None:
    def held(values: list[tuple[int, int]], now: int) -> int:
        return next((value for at, value in sorted(values, reverse=True) if at <= now), 0)

    full = [held(flying, now) >= held(limit, now) > 0 < held(queued, now) for now in range(310)]
    intervals, total = at_limit(as_counter(flying), as_counter(limit), as_counter(queued), 310)
    assert total == sum(full)
    assert [any(one <= now < other for one, other in intervals) for now in range(310)] == full


@given(counter, st.integers(4, 30))
def test_a_thinned_counter_keeps_its_peak_and_its_end(values: list[tuple[int, int]], most: int) -> None:
    at, value = as_counter(values)
    kept_at, kept = thinned((at, value), 300, most)
    assert len(kept) <= most + 3
    assert kept.max() == value.max()
    assert (kept_at[-1], kept[-1]) == (at[-1], value[-1])
    known = dict(zip(at.tolist(), value.tolist(), strict=True))
    assert all(known[one] == other for one, other in zip(kept_at.tolist(), kept.tolist(), strict=True))


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_a_file_of_anything_else_is_refused_or_read(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        read(content)


def test_the_file_that_is_read_is_the_one_that_the_engine_writes(example: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.pftrace"
    summary = _native.select_trace([str(example)], output=str(part))
    recorded = read(part.read_bytes())
    assert len(recorded.slices) == summary.slices
    assert recorded.span_ns == round(summary.span_s * 1e9)
    assert recorded.started_s == pytest.approx(time.time(), abs=3600)
