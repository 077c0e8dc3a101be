"""``guerdon score``: rows in, rows out, and what becomes of failures and of skipped calls."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from guerdon.cli import main
from tests.cli.conftest import REWARDS, Command, write_rewards, write_rows

FAILING = """
import guerdon

@guerdon.reward(timeout=30, grace=0.1, lane="thread")
def fails(completion: str) -> float | None:
    if completion == "raise":
        raise ValueError("no such thing")
    if completion == "abstain":
        return None
    return float(completion)
"""


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_writes_a_row_for_each_sample(guerdon: Command, tmp_path: Path, data: Path, lane: str) -> None:
    rewards = write_rewards(tmp_path, REWARDS.replace('lane="thread"', f"lane={lane!r}"))
    ended = guerdon("score", rewards, data)
    assert ended.code == 0
    assert ended.rows == [
        {
            "index": index,
            "rewards": {"correct": correct, "length": length},
            "status": {"correct": "ok", "length": "ok"},
        }
        for index, (correct, length) in enumerate([(1.0, 0.1), (1.0, 0.1), (0.0, 0.2), (1.0, 0.4)])
    ]


def test_the_summary_goes_to_stderr(guerdon: Command, rewards: Path, data: Path) -> None:
    ended = guerdon("score", rewards, data)
    header, correct, length, _, total = ended.err.splitlines()
    assert header.split() == ["function", "mean", "std", "ok", "p50", "p90", "p99", "samples/s"]
    assert correct.split()[:4] == ["correct", "0.75", "0.5", "4"]
    assert length.split()[:2] == ["length", "0.2"]
    assert total.startswith("4 samples in ")
    assert guerdon("score", rewards, data, "--quiet").err == ""


def test_names_choose_functions_decorated_or_not(guerdon: Command, rewards: Path, data: Path) -> None:
    ended = guerdon("score", f"{rewards}:plain,correct", data)
    assert list(ended.rows[0]["rewards"]) == ["plain", "correct"]
    assert ended.rewards("plain") == [4.0] * 4


def test_a_module_is_found_from_the_working_folder(
    guerdon: Command, rewards: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(rewards.parent)
    assert guerdon("score", f"{rewards.stem}:correct", data).rewards("correct") == [1.0, 1.0, 0.0, 1.0]


def test_keep_writes_the_input_line_unchanged(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    lines = [
        r'{"completion": "é\ud800", "answer": "", "number": 1.10, "big": 123456789012345678901234567890}',
        '{ "answer":"x" ,"completion":"é" }',
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines) + "\n")
    ended = guerdon("score", f"{rewards}:correct", data, "--keep")
    assert [line.partition('"row": ')[2] for line in ended.out.splitlines()] == [line + "}" for line in lines]


RECORDING = """
import guerdon

@guerdon.reward(lane="thread")
def judged(completion, log_extra):
    log_extra("length", len(completion))
    if completion == "raise":
        raise ValueError("no")
    right = completion == "4"
    return {"score": float(right), "reason": "" if right else f"it says {completion[:1]}", "odd": float("nan")}

@guerdon.reward(lane="thread")
def plain(completion):
    return 0.0
"""


def test_extra_fields_are_written_on_request(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(tmp_path, RECORDING)
    data = write_rows(tmp_path / "data.jsonl", [{"completion": text} for text in ("4", "5", "52", "raise", "\ud800")])
    ended = guerdon("score", rewards, data, "--extra", "--keep")
    first, second, _, failed, odd = ended.rows
    assert first["extra"] == {"judged": {"reason": "", "length": 1, "odd": None}}
    assert second["extra"]["judged"]["reason"] == "it says 5"
    assert failed["extra"] == {}, "what a call recorded goes with its failure"
    assert odd["extra"]["judged"]["reason"] == "it says \ud800"
    assert list(first) == ["index", "rewards", "status", "extra", "row"]
    assert "extra" not in guerdon("score", rewards, data).rows[0]


def test_a_slow_run_has_a_speed(guerdon: Command, tmp_path: Path) -> None:
    code = "import time, guerdon\n@guerdon.reward(lane='thread')\ndef naps(completion):\n    time.sleep(1.2)\n    return 1.0\n"
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "a"}])
    summary = guerdon("score", write_rewards(tmp_path, code), data).err.splitlines()[-1]
    assert re.fullmatch(r"1 samples in [\d.]+ s, 0\.\d\d? samples/s", summary), summary


def test_the_help_says_how_few_samples_are_not_judged(guerdon: Command) -> None:
    text = " ".join(guerdon("score", "--help").out.split())
    assert "judged over the whole file where at least 8 samples were called" in text


def test_fields_and_maps(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    rows = [{"generation": "7", "meta": {"truth": "7"}, "answer": "8"}, {"generation": "8", "meta": {"truth": "7"}}]
    rows[1]["answer"] = "8"
    data = write_rows(tmp_path / "data.jsonl", rows)
    command = ("score", f"{rewards}:correct", data, "--completion-field", "generation")
    assert guerdon(*command).rewards("correct") == [0.0, 1.0]
    assert guerdon(*command, "--map", "answer=meta.truth").rewards("correct") == [1.0, 0.0]


def test_prompts_may_have_any_name(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(
        tmp_path,
        "import guerdon\n@guerdon.reward(lane='thread')\ndef echo(prompt, completion):\n    return float(prompt == completion)\n",
    )
    data = write_rows(
        tmp_path / "data.jsonl", [{"question": "a", "completion": "a"}, {"question": "b", "completion": "a"}]
    )
    assert guerdon("score", rewards, data, "--prompt-field", "question").rewards("echo") == [1.0, 0.0]
    err = guerdon.refused("score", rewards, data)
    assert "the field 'prompt'" in err
    assert "--prompt-field" in err


def test_conversations(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    completion = [{"role": "assistant", "content": "0123456789"}]
    data = write_rows(tmp_path / "data.jsonl", [{"completion": completion}])
    assert guerdon("score", f"{rewards}:length", data).rewards("length") == [1.0]


def test_a_group_function_needs_the_group_size(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(
        tmp_path,
        "import guerdon\n@guerdon.group_reward\ndef best(completions, **columns):\n"
        "    return [float(each == max(completions)) for each in completions]\n",
    )
    data = write_rows(tmp_path / "data.jsonl", [{"completion": text} for text in ("1", "2", "4", "3")])
    assert guerdon("score", rewards, data, "-n", 2).rewards("best") == [0.0, 1.0, 1.0, 0.0]
    assert "'best' works on whole groups" in guerdon.refused("score", rewards, data)
    assert "4 rows" in guerdon.refused("score", rewards, data, "-n", 3)


def test_one_dispatcher_brings_its_options(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(
        tmp_path,
        "import guerdon\n@guerdon.group_reward(lane='thread')\ndef size(completions):\n"
        "    return [len(completions)] * len(completions)\n"
        "@guerdon.reward\ndef unused(completion):\n    return 0\n"
        "all = guerdon.Dispatcher([size], num_generations=2, workers=1)\n",
    )
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "x"}] * 4)
    ended = guerdon("score", rewards, data)
    assert [row["rewards"] for row in ended.rows] == [{"size": 2.0}] * 4
    assert guerdon("score", f"{rewards}:all", data, "--workers", 2).rows == ended.rows


def test_a_batch_function_sees_all_rows_by_default(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "x", "prompt": ""}] * 5000)
    assert set(guerdon("score", f"{rewards}:plain", data).rewards("plain")) == {5000.0}
    assert set(guerdon("score", f"{rewards}:plain", data, "--chunk", 2500).rewards("plain")) == {2500.0}


def test_chunks_change_nothing(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    rows = [{"completion": str(i % 7), "answer": str(i % 3)} for i in range(100)]
    data = write_rows(tmp_path / "data.jsonl", rows)
    whole = guerdon("score", rewards, data)
    assert whole.rewards("correct") == [float(i % 7 == i % 3) for i in range(100)]
    for chunk in (1, 7, 99, 100, 1000, "9" * 30):
        assert guerdon("score", rewards, data, "--chunk", chunk).rows == whole.rows


def test_failures_are_null_with_a_status(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(tmp_path, FAILING)
    data = write_rows(tmp_path / "data.jsonl", [{"completion": each} for each in ("1", "raise", "abstain", "2.5")])
    log = tmp_path / "failures.jsonl"
    ended = guerdon("score", rewards, data, "--failures", log)
    assert ended.code == 0  # 1 of 4: fewer than 8 samples are never too many
    assert ended.rewards("fails") == [1.0, None, None, 2.5]
    assert [row["status"]["fails"] for row in ended.rows] == ["ok", "error", "abstained", "ok"]
    assert "fails: 1 of 4 failed\n  1 error, first sample 1: ValueError: no such thing" in ended.err
    [failure] = [json.loads(line) for line in log.read_text().splitlines()]
    assert failure["index"] == 1
    assert failure["function"] == "fails"
    assert failure["reason"] == "ValueError: no such thing"
    assert rewards.name in failure["traceback"]


def test_too_many_failures_of_the_file_still_write_every_row(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(tmp_path, FAILING)
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "raise" if i % 4 else "1"} for i in range(40)])
    ended = guerdon("score", rewards, data, "--chunk", 10)
    assert ended.code == 1
    assert ended.rewards("fails") == [None if i % 4 else 1.0 for i in range(40)]
    assert "'fails' failed on 30 of 40 samples, more than the 50 % allowed" in ended.err
    assert guerdon("score", rewards, data, "--max-failure-rate", 0.75).code == 0
    write_rows(data, [{"completion": "raise" if i < 10 else "1"} for i in range(100)])
    assert guerdon("score", rewards, data, "--chunk", 10).code == 0, "a chunk of failures alone ends nothing"


def test_on_failure_raise_means_exit_code_1(guerdon: Command, tmp_path: Path) -> None:
    rewards = write_rewards(tmp_path, FAILING.replace("timeout=30", "on_failure='raise'"))
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "1"}, {"completion": "raise"}, {"completion": "2"}])
    ended = guerdon("score", rewards, data, "--chunk", 1)
    assert ended.code == 1
    assert ended.rewards("fails") == [1.0, None, 2.0]


def test_input_may_be_stdin_or_gzipped(
    guerdon: Command, rewards: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = guerdon("score", rewards, data).rows
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.read_bytes())))
    assert guerdon("score", rewards, "-").rows == expected
    packed = tmp_path / "data.jsonl.gz"
    packed.write_bytes(gzip.compress(data.read_bytes()))
    assert guerdon("score", rewards, packed).rows == expected
    packed.write_bytes(packed.read_bytes()[:-9])
    assert "can't be unpacked" in guerdon.refused("score", rewards, packed)


def test_output_may_be_a_file_gzipped_or_not(guerdon: Command, rewards: Path, data: Path, tmp_path: Path) -> None:
    expected = guerdon("score", rewards, data).out
    for name in ("out.jsonl", "out.jsonl.gz"):
        ended = guerdon("score", rewards, data, "-o", tmp_path / name)
        assert (ended.code, ended.out) == (0, "")
    assert (tmp_path / "out.jsonl").read_text() == expected
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).decode() == expected


@pytest.mark.parametrize("name", ["x.csv", "x", "x.csv.gz", "x.jsonl.zst", "x.txt"])
def test_names_of_other_formats_are_refused(
    guerdon: Command, rewards: Path, data: Path, tmp_path: Path, name: str
) -> None:
    assert "results are written as JSONL." in guerdon.refused("score", rewards, data, "-o", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_csv(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('\ufeffcompletion,answer\n4,4\n"a, b\nc",5\n\n', encoding="utf-8")
    ended = guerdon("score", rewards, path, "--keep", "-q")
    assert ended.code == 0, ended.err
    kept = [json.loads(line)["row"] for line in ended.out.splitlines()]
    assert kept == [{"completion": "4", "answer": "4"}, {"completion": "a, b\nc", "answer": "5"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("completion,answer\n4,4\n1,2,3\n", "data.csv, line 3 has 3 values for 2 columns"),
        ("completion,completion\n4,4\n", "line 1 has to name each column once"),
        ('completion,answer\n"4,4\n', "can't be read as CSV"),
    ],
)
def test_csv_that_is_damaged_is_refused(
    guerdon: Command, rewards: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    assert message in guerdon.refused("score", rewards, path, "-q")


def test_parquet(guerdon: Command, rewards: Path, data: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = [json.loads(line) for line in data.read_text().splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "data.parquet")
    scored = guerdon("score", rewards, tmp_path / "data.parquet", "--keep", "--chunk", 3).rows
    assert [row.pop("row") for row in scored] == rows
    assert scored == guerdon("score", rewards, data).rows


# A file's line ends at the first of these only, Python's text may end one at each.
_ODD = "\n\r\x00\x0b\x1c\x85\u2028\u2029"
_SURROGATES = "\udfff\ud800"
_keys = st.text(max_size=5).filter(lambda key: key not in ("completion", "answer"))
_rows = st.lists(
    st.fixed_dictionaries(
        {"completion": st.text(st.characters(), max_size=20), "answer": st.text(st.characters(), max_size=20)},
    ).flatmap(
        lambda row: st.dictionaries(_keys, st.none() | st.booleans() | st.integers() | st.text(), max_size=3).map(
            lambda more: {**more, **row}
        )
    ),
    min_size=1,
    max_size=30,
)


@settings(
    max_examples=max(1, settings().max_examples // 12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=_rows, chunk=st.integers(1, 12), escaped=st.booleans())
@example(rows=[{"completion": text, "answer": _ODD, "": text} for text in ("", *_ODD, _ODD)], chunk=2, escaped=False)
@example(rows=[{"completion": _SURROGATES + _ODD, "answer": ""}], chunk=1, escaped=True)
def test_any_text_in_any_chunks(rows: list[dict[str, object]], chunk: int, escaped: bool, tmp_path: Path) -> None:
    """Odd text (surrogates, NUL, line separators) goes through, in order, and ``--keep`` gives it
    back."""
    rewards = write_rewards(
        tmp_path,
        "import guerdon\n@guerdon.reward(lane='thread')\ndef same(completion, answer):\n"
        "    return float(completion == answer) + len(completion)\n",
    )
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps(row, ensure_ascii=escaped) for row in rows]
    try:
        data.write_bytes("\n".join(lines).encode())
    except UnicodeEncodeError:
        data.write_bytes("\n".join(json.dumps(row) for row in rows).encode())
    assert main(["score", str(rewards), str(data), "-o", str(out), "--keep", "-q", "--chunk", str(chunk)]) == 0
    written = [json.loads(line) for line in out.read_bytes().split(b"\n")[:-1]]
    assert [row["row"] for row in written] == rows
    assert [row["rewards"]["same"] for row in written] == [
        float(row["completion"] == row["answer"]) + len(str(row["completion"])) for row in rows
    ]


GATED = """
import guerdon

@guerdon.reward(lane="thread")
def right(completion: str) -> float:
    return float(completion == "4")

@guerdon.reward(lane="thread", run_if={"right": "< 1"})
def judge(completion: str) -> float:
    if completion == "bad":
        raise ValueError("no such thing")
    return 0.25

@guerdon.reward(lane="thread", run_if={"right": "< 1"}, otherwise=1.0)
def partial(completion: str) -> float:
    return 0.5
"""


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    return write_rewards(tmp_path, GATED)


def rows(folder: Path, *completions: str) -> Path:
    return write_rows(folder / "data.jsonl", [{"completion": completion} for completion in completions])


def test_a_skipped_cell_in_rows_and_the_table(guerdon: Command, gated: Path, tmp_path: Path) -> None:
    failures = tmp_path / "failures.jsonl"
    ended = guerdon("score", gated, rows(tmp_path, "4", "5"), "--failures", failures)
    assert ended.code == 0
    assert [(row["rewards"], row["status"]) for row in ended.rows] == [
        ({"right": 1.0, "judge": None, "partial": 1.0}, {"right": "ok", "judge": "skipped", "partial": "skipped"}),
        ({"right": 0.0, "judge": 0.25, "partial": 0.5}, {"right": "ok", "judge": "ok", "partial": "ok"}),
    ]
    assert failures.read_text() == ""
    header, right, judge, partial, *_ = (line.split() for line in ended.err.splitlines())
    assert header[3:5] == ["ok", "skipped"]
    assert [right[3:5], judge[3:5], partial[3:5]] == [["2", "0"], ["1", "1"], ["1", "1"]]
    assert (judge[1], partial[1]) == ("0.25", "0.75"), "what was skipped has a part in the mean where it has a number"


def test_skipped_samples_do_not_hide_a_function_that_always_fails(
    guerdon: Command, gated: Path, tmp_path: Path
) -> None:
    """The rate is that of the calls that were made, as everywhere."""
    ended = guerdon("score", gated, rows(tmp_path, *["4"] * 92, *["bad"] * 8), "--max-failure-rate", "0.5")
    assert ended.code != 0
    assert "'judge' failed on 8 of 8 samples" in ended.err
    assert "'right' failed" not in ended.err


def test_a_few_calls_of_many_samples_are_not_judged(guerdon: Command, gated: Path, tmp_path: Path) -> None:
    ended = guerdon("score", gated, rows(tmp_path, *["4"] * 97, *["bad"] * 3), "--max-failure-rate", "0")
    assert ended.code == 0, ended.err
