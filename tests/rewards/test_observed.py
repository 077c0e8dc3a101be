"""Native rewards are seen as other functions are: by profiles, metrics, the live state,
timelines, journals, replays, and the assertions of `guerdon.testing`."""

from __future__ import annotations

from pathlib import Path

import guerdon
from guerdon import Dispatcher, Journal, Trace, rewards
from guerdon.profile import profile
from tests.journal.written_rows import matches, rows_of
from tests.monitor import reading
from tests.timeline.perfetto_files import assert_whole, parse

ROWS = [{"prompt": f"{n} + 5 =", "completion": f"It is {n + 5}.", "answer": f"{n + 5}"} for n in range(10, 22)]
BATCH = {"completions": [str(row["completion"]) for row in ROWS], "answer": [row["answer"] for row in ROWS]}


def test_a_profile_measures_them_and_leaves_their_lane() -> None:
    functions = [rewards.squad_f1(), rewards.edit_distance(timeout=3)]
    found = profile(functions, ROWS, checks=[])
    assert {name: one.advice.lane for name, one in found.functions.items()} == {
        "squad_f1": "native",
        "edit_distance": "native",
    }
    for one in found.functions.values():
        assert one.measurement is not None
        assert len(one.measurement.seconds) == len(ROWS)
        assert not one.measurement.failures


def test_audits_find_nothing_wrong_with_them() -> None:
    found = profile([rewards.exact_match()], [{**row, "completion": row["answer"]} for row in ROWS])
    assert [one for one in found.functions["exact_match"].findings if one.severity != "info"] == []


def test_metrics_and_the_live_state_count_them() -> None:
    with Dispatcher([rewards.squad_f1(), rewards.exact_match()], metrics_port=0) as dispatcher:
        dispatcher.score(**BATCH)
        found = reading.series(reading.families(reading.text(dispatcher)))
        calls = {
            name: reading.value(found, "guerdon_calls_total", function=name, status="ok") for name in ("squad_f1",)
        }
        state = reading.state(dispatcher)
    assert calls == {"squad_f1": 12.0}
    assert {one["name"]: one["lane"] for one in state["functions"]} == {"squad_f1": "native", "exact_match": "native"}


def test_their_calls_are_slices_of_a_timeline(tmp_path: Path) -> None:
    slow = rewards.edit_distance()
    text = "ab" * 20_000
    with Dispatcher(
        [slow], trace=Trace(tmp_path / "run.pftrace", size="4MiB", shortest=50e-6), workers=2
    ) as dispatcher:
        dispatcher.score(completions=[text] * 4, answer=["b" + text] * 4, num_generations=2)
    file = parse(tmp_path / "run.pftrace")
    assert_whole(file)
    calls = [one for one in file.named("edit_distance") if "sample" in one.values]
    assert sorted(one.values["sample"] for one in calls) == [0, 1, 2, 3]
    assert {one.values["status"] for one in calls} == {"ok"}


def test_journals_hold_their_cells_and_replays_give_the_same(tmp_path: Path) -> None:
    functions = [rewards.rouge_l(), rewards.exact_match(tag="answer"), rewards.repetition_penalty(2, of="words")]
    with Dispatcher(functions, journal=Journal(tmp_path / "journal", texts=True, columns=["answer"])) as dispatcher:
        result = dispatcher.score(**BATCH, num_generations=4)
    matches(rows_of(tmp_path / "journal"), result)
    again = guerdon.replay(tmp_path / "journal", functions, workers=1)
    assert (again.samples, again.differences) == (12, 0)
    other = guerdon.replay(tmp_path / "journal", [rewards.rouge_l(measure="recall"), *functions[1:]], workers=1)
    assert other.differences > 0
