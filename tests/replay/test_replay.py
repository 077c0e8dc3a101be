"""``guerdon.replay``: what the functions get, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import guerdon
from guerdon import DataError, Dispatcher, pairwise, panel, reward, rubric
from tests.http.server import chat_completion, question, serving
from tests.journal_files import row, table, training, write_journal, write_open_part, write_part
from tests.replay.functions import SIZE, CentredReward, all_shapes, batches, length, moody, spread, whole_batch
from tests.replay.recorded import record, rows_of, write_rows


@pytest.mark.parametrize("parts", [1, 4])
def test_the_same_functions_give_the_same_values(tmp_path: Path, parts: int) -> None:
    journal = record(tmp_path / "j", all_shapes(), batches(), size=SIZE, weights=[1, 0.5, 2, 1, 0.1], parts=parts)
    found = guerdon.replay(journal, all_shapes(), workers=1)
    assert found.differences == 0
    assert found.samples == 36
    assert found.groups == 9
    for name in ("length", "moody", "spread", "centred", "whole_batch"):
        diff = found.functions[name]["diff"]
        assert (diff["compared"], diff["moved"]) == (36, 0), name
        assert diff["ranks"]["groups_changed"] == 0
    assert found.functions["moody"]["status"]["error"] > 0
    assert (found.total["compared"], found.total["moved"]) == (36, 0)
    assert found.total["advantages"]["changed"] == 0
    assert found.moved == []


def test_rows_in_any_order_make_the_same_groups(tmp_path: Path) -> None:
    rows = rows_of(all_shapes(), batches(), size=SIZE)
    places = np.random.default_rng(3).permutation(len(rows))
    journal = write_rows(tmp_path / "j", [rows[place] for place in places], parts=3)
    found = guerdon.replay(journal, all_shapes(), workers=1, chunk=8)
    assert (found.groups, found.incomplete["groups"], found.differences) == (9, 0, 0)


def test_several_runs_and_ranks_lie_in_one_folder(tmp_path: Path) -> None:
    rows = []
    for run in ("a", "b"):
        for rank in range(2):
            rows += rows_of([length, spread], batches(2), size=SIZE, run=run, rank=rank)
    journal = write_rows(tmp_path / "j", rows, parts=2)
    found = guerdon.replay(journal, [length, spread])
    assert (found.samples, found.differences) == (4 * 24, 0)
    assert guerdon.replay(journal, [length], runs=["b"]).samples == 48
    assert guerdon.replay(journal, [length], steps=(1, None)).samples == 48
    assert guerdon.replay(journal, [length], runs=["a"], steps=(0, 0)).samples == 24
    with pytest.raises(DataError, match="The journal's runs: a, b"):
        guerdon.replay(journal, [length], runs=["c"])


def test_values_that_were_no_strings_come_back_as_they_were(tmp_path: Path) -> None:
    conversation = [{"role": "assistant", "content": "four"}]
    batch = {
        "completions": [conversation, [{"role": "assistant", "content": "fünf"}]],
        "answer": [{"value": [1, 2.5, None]}, "text"],
        "number": [1, None],
    }
    got: list[Any] = []

    @reward(lane="thread")
    def seen(completion: Any, text: str, answer: Any, number: Any) -> float:
        got.append((completion, text, answer, number))
        return float(len(text))

    journal = record(tmp_path / "j", [seen], [batch], size=2)
    first, got[:] = list(got), []
    assert guerdon.replay(journal, [seen]).differences == 0
    assert sorted(got, key=str) == sorted(first, key=str)


def test_columns_missing_in_the_journal_are_named_before_any_call(tmp_path: Path) -> None:
    called = []

    @reward(lane="thread")
    def wants_hint(completion: str, hint: str) -> float:
        called.append(completion)
        return 1.0

    @reward(lane="thread")
    def wants_state(trainer_state: Any, hint: str = "-") -> float:
        return 1.0

    journal = record(tmp_path / "j", [length], batches(1), size=SIZE)
    with pytest.raises(DataError) as refused:
        guerdon.replay(journal, [length, wants_hint, wants_state])
    message = str(refused.value)
    assert "'wants_hint': the column 'hint'" in message
    assert "'wants_state': 'trainer_state', which no journal keeps" in message
    assert "It has: the prompt, the completion, the column 'answer'." in message
    assert "length" not in message
    assert called == []


def test_a_journal_without_texts_is_enough_for_functions_of_columns(tmp_path: Path) -> None:
    rows = [row(group=s // SIZE, sample=s, function="short", value=1.0, column_answer=str(s)) for s in range(8)]
    journal = write_journal(tmp_path / "j", rows, columns=["answer"])
    answered = reward(lambda answer: float(answer), name="short", lane="thread")
    assert guerdon.replay(journal, [answered]).functions["short"]["scored"] == 8
    with pytest.raises(DataError, match=r"'length': the completion\nIt has: the column 'answer'"):
        guerdon.replay(journal, [length])


def test_a_text_that_only_some_parts_have_is_missing(tmp_path: Path) -> None:
    rows = rows_of([length], batches(1), size=SIZE)
    folder = write_rows(tmp_path / "j", rows)
    write_part(folder, table([row(run="later")]), run="later")
    with pytest.raises(DataError, match=r"'length': the completion \(only 1 of 2 parts have it\)"):
        guerdon.replay(folder, [length])
    assert guerdon.replay(folder, [length], runs=["run-1"]).differences == 0


def test_a_default_and_all_columns_are_noted(tmp_path: Path) -> None:
    @reward(lane="thread")
    def relaxed(completion: str, hint: str = "none", **row: Any) -> float:
        assert list(row) == ["answer"]
        return float(hint == "none")

    journal = record(tmp_path / "j", [length], batches(1), size=SIZE)
    found = guerdon.replay(journal, [relaxed])
    assert found.functions["relaxed"]["status"] == {"ok": 12}
    assert any("uses its default for 'hint'" in note for note in found.notes)
    assert any("takes all columns" in note and "'answer'" in note for note in found.notes)
    assert any("not in the journal" in note and "'relaxed'" in note for note in found.notes)
    assert found.functions["relaxed"]["diff"] is None


def test_functions_that_are_not_named_keep_their_rewards(tmp_path: Path) -> None:
    journal = record(tmp_path / "j", [length, moody], batches(), size=SIZE, weights=[1.0, 2.0])
    shorter = reward(lambda text: float(len(text)) - 1, name="length", lane="thread")
    found = guerdon.replay(journal, [shorter])
    assert list(found.functions) == ["length"]
    assert any("not replayed" in note and "'moody'" in note for note in found.notes)
    assert found.functions["length"]["diff"]["mean"]["now"] == found.functions["length"]["diff"]["mean"]["journal"] - 1
    # All totals fall by 1, so no advantage changes.
    assert found.total["advantages"]["changed"] == 0


def test_weights_given_now_go_before_those_of_the_journal(tmp_path: Path) -> None:
    journal = record(tmp_path / "j", [length, spread], batches(1), size=SIZE, weights=[1.0, 3.0])
    assert guerdon.replay(journal, [length, spread]).total["moved"] == 0
    with Dispatcher([length, spread], weights=[2.0, 6.0]) as dispatcher:
        doubled = guerdon.replay(journal, dispatcher).total
    assert doubled["mean"]["now"] == pytest.approx(2 * doubled["mean"]["journal"])
    assert doubled["ranks"]["groups_changed"] == 0


def test_groups_that_lack_samples_are_reported_and_left_out_of_groups(tmp_path: Path) -> None:
    rows = [
        each for each in rows_of([length, spread], batches(2), size=SIZE) if (each["batch"], each["sample"]) != (1, 6)
    ]
    journal = write_rows(tmp_path / "j", rows)
    found = guerdon.replay(journal, [length, spread, whole_batch])
    assert found.incomplete["groups"] == 3  # a function of batches sees batch 1 whole or not at all
    found = guerdon.replay(journal, [length, spread])
    assert found.incomplete == {
        "groups": 1,
        "examples": [{"run": "run-1", "rank": 0, "batch": 1, "group": 1, "samples": 3}],
    }
    assert found.functions["spread"]["left_out"] == 3
    assert found.functions["spread"]["scored"] == 20
    assert found.functions["length"]["scored"] == 23
    assert found.total["compared"] == 20
    assert any("1 groups lack samples" in note and "'spread' was not called" in note for note in found.notes)


def test_a_row_that_is_there_twice_counts_once_and_is_noted(tmp_path: Path) -> None:
    rows = rows_of([length], batches(1), size=SIZE)
    journal = write_rows(tmp_path / "j", [*rows, {**rows[0], "reward": 99.0}])
    found = guerdon.replay(journal, [length])
    assert found.differences == 0
    assert any("1 rows of the journal repeat a cell" in note for note in found.notes)


def test_a_part_that_is_still_written_is_read_to_its_last_whole_message(tmp_path: Path) -> None:
    rows = rows_of([length], batches(2), size=SIZE)
    whole = table(rows, texts=True, columns=["answer"])
    folder = tmp_path / "j"
    write_part(folder, whole.slice(0, 12))
    write_open_part(folder, whole.slice(12), part=1, chunk=4, cut=9)
    found = guerdon.replay(folder, [length])
    assert (found.samples, found.incomplete["groups"], found.differences) == (20, 0, 0)
    # killed within its first message
    (folder / "run-1-r0-77-00000.arrows").write_bytes(b"\xff\xff")
    (folder / "run-1-r0-78-00000.arrows").touch()
    assert guerdon.replay(folder, [length]).samples == 20


def test_a_batch_larger_than_a_chunk_is_scored_in_whole_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from guerdon._replay import chunks

    monkeypatch.setattr(chunks, "_ROWS", 7)
    journal = record(tmp_path / "j", [length, spread], batches(2, groups=20), size=SIZE)
    found = guerdon.replay(journal, [length, spread], chunk=4)
    assert (found.samples, found.groups, found.incomplete["groups"], found.differences) == (160, 40, 0, 0)


def test_other_paths_than_journals_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no journal"):
        guerdon.replay(tmp_path / "none", [length])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="has no parts"):
        guerdon.replay(empty, [length])
    write_part(empty, table([]))
    with pytest.raises(DataError, match="has parts, but no rows"):
        guerdon.replay(empty, [length])
    for name in ("run", "batch", "rank", "group", "sample", "function"):
        write_part(tmp_path / name, table([row(), {**row(sample=1), name: None}]))
        with pytest.raises(DataError, match=f"has rows without a {name}"):
            guerdon.replay(tmp_path / name, [length])


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    journal = record(tmp_path / "j", [length], batches(1), size=SIZE)
    for wrong in (
        {"tolerance": -1},
        {"tolerance": "x"},
        {"moved": -1},
        {"steps": (2, 1)},
        {"runs": "run-1"},
    ):
        with pytest.raises(DataError):
            guerdon.replay(journal, [length], **wrong)  # type: ignore[arg-type]
    with pytest.raises(guerdon.RegistrationError, match="guerdon replay"):
        guerdon.replay(journal, "rewards.py")
    with pytest.raises(guerdon.RegistrationError):
        guerdon.replay(journal, [length], workers=0)


def test_the_new_rewards_are_a_line_a_sample_under_the_keys_of_the_journal(tmp_path: Path) -> None:
    journal = record(tmp_path / "j", [length, moody], batches(), size=SIZE, weights=[1.0, 0.5], parts=2)
    longer = reward(lambda text: len(text) + 1.0, name="length", lane="thread")
    found = guerdon.replay(journal, [longer, moody], out=tmp_path / "out.jsonl")
    assert found.differences == 36
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 36
    now = {(line["batch"], line["sample"]): line for line in lines}
    keys = ("run", "step", "rank", "batch", "group", "sample")
    for then in pq.read_table(journal).to_pylist():
        line, name = now[then["batch"], then["sample"]], then["function"]
        assert {key: line[key] for key in keys} == {key: then[key] for key in keys}
        change = 1.0 if name == "length" else 0.0
        expected = None if then["reward"] is None else pytest.approx(then["reward"] + change, rel=1e-7)
        assert line["rewards"][name] == expected
        assert line["status"][name] == then["status"]
        assert line.get("reasons", {}).get(name) == then["reason"]


def test_a_gate_behind_finish_group_is_called_on_whole_groups_alone(tmp_path: Path) -> None:
    centred = reward(CentredReward(), name="centred", lane="thread")
    gated = reward(lambda text: 3.0, name="gated", lane="thread", run_if={"centred": "> 0"}, otherwise=0.0)
    functions = [centred, gated, length]
    rows = rows_of(functions, batches(1), size=SIZE)
    found = guerdon.replay(write_rows(tmp_path / "j", rows), functions)
    assert found.differences == 0
    assert found.functions["gated"]["status"].keys() == {"ok", "skipped"}
    partial = write_rows(tmp_path / "partial", [each for each in rows if each["sample"] != 5])
    found = guerdon.replay(partial, functions)
    assert [found.functions[name]["left_out"] for name in ("centred", "gated", "length")] == [3, 3, 0]
    assert found.differences == 0


def test_judges_of_all_kinds_give_the_same_again(tmp_path: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        asked = question(body)
        if asked.startswith("<"):
            first, second = asked[1:].split("> or <")
            return chat_completion("[[A]]" if len(first) > len(second) else "[[B]]")
        return chat_completion(f"Score: {len(asked) % 10}")

    with serving(answer) as server:
        ask = {"base_url": server.url, "model": "m", "retries": 0}
        one = guerdon.judge(prompt="{prompt} {completion}", name="one", keep_answers=True, **ask)
        other = guerdon.judge(prompt="{completion} {answer}", name="other", **ask)
        both = panel([one, other], name="both")
        better = pairwise(prompt="<{completion_a}> or <{completion_b}>", name="better", schedule="all", **ask)
        functions = [one, both, better]
        journal = record(tmp_path / "j", functions, batches(1), size=SIZE)
        found = guerdon.replay(journal, functions)
        assert (found.differences, found.functions["both"]["status"]) == (0, {"ok": 12})
        assert found.functions["one"]["usage"]["requests"] == 12
        assert guerdon.replay(journal, [better]).differences == 0


def test_the_diff_of_a_training_run_is_that_of_its_rows(tmp_path: Path) -> None:
    rows = [each for each in training(steps=6, texts=True) if each["function"] in ("correct", "format")]
    journal = write_journal(tmp_path / "j", rows, texts=True, columns=["answer"], parts=2)
    half = reward(lambda completion: 0.5, name="correct", lane="thread")
    diff = guerdon.replay(journal, [half], tolerance=0.25).functions["correct"]["diff"]
    old = [each["reward"] for each in rows if each["function"] == "correct"]
    numbers = [value for value in old if value is not None]
    assert diff["compared"] == len(old)
    assert diff["failures_to_answers"] == len(old) - len(numbers) > 0
    assert diff["moved"] == len(old)
    assert diff["mean"] == {"journal": pytest.approx(np.mean(numbers)), "now": 0.5}


def test_a_rubric_is_scored_with_all_its_columns(tmp_path: Path) -> None:
    from tests.http.test_rubric import answer

    with serving(answer) as server:
        made = rubric({"correct": "Right.", "clear": "Clear."}, base_url=server.url, model="m", retries=0)
        journal = record(tmp_path / "j", [made], [{"completions": ["a", "b"], "prompts": ["p", "p"]}], size=2)
        found = guerdon.replay(journal, [made])
    assert found.functions["rubric/clear"]["diff"]["compared"] == 2
    assert found.differences == 0
