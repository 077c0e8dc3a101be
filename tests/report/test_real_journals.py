"""Reports on journals that dispatchers wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Journal, reward
from guerdon.cli import main
from tests.journal_files import row, table, write_open_part


@reward(lane="thread", name="length")
def length(text: str) -> float | None:
    if "raise" in text:
        raise ValueError("no <b>length</b>")
    return None if "none" in text else float(len(text))


@reward(lane="thread", name="constant")
def constant(completion: object, log_metric: Any) -> float:
    log_metric("words", 7.0)
    return 1.0


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def score(dispatcher: Dispatcher, step: int, words: list[str]) -> None:
    state = {"global_step": step}
    dispatcher.score(
        prompts=["<i>say</i>"] * len(words),
        completions=[chat(word) for word in words],
        num_generations=4,
        trainer_state=state,
    )


def figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["report", str(folder), "--json", "-q"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_journal_is_reported_while_it_is_written_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rewards"
    with Dispatcher([length, constant], journal=Journal(folder, texts=True), max_failure_rate=1.0) as dispatcher:
        for step in range(1, 9):
            score(dispatcher, step, ["a", "bb", "none", "raise"] + ["same"] * 4)
        early = ["report", str(folder), "-q", "-o", str(tmp_path / "early.html")]
        while (code := main(early)) != 0:
            assert code == 2  # no row yet
    capsys.readouterr()
    found = figures(folder, capsys)
    assert (found["rows"], found["open_parts"]) == (128, 0)
    assert found["axis"]["first"] == list(range(1, 9))
    each = found["functions"]["length"]
    assert each["status"] == {"ok": 48, "abstained": 8, "error": 8}
    assert (each["min"], each["max"]) == (1, 4)
    assert (each["groups"], each["zero_spread"]) == (16, 8)
    assert found["functions"]["constant"]["zero_spread_share"] == 1
    assert found["total"]["groups"] == 16
    [failure] = found["failures"]
    assert (failure["count"], failure["function"]) == (8, "length")
    assert "no <b>length</b>" in failure["reason"]
    assert "test_real_journals" in failure["examples"][0]["traceback"]
    page = tmp_path / "report.html"
    assert main(["report", str(folder), "--texts", "-q", "-o", str(page)]) == 0
    html = page.read_text(encoding="utf-8")
    samples = re.findall(r'<details class="sample".*?</details>', html, re.DOTALL)
    assert all("&lt;i&gt;say&lt;/i&gt;" in sample for sample in samples)
    assert any("[assistant] a" in sample for sample in samples)
    assert any("[assistant] raise" in sample for sample in samples)


def test_rows_of_a_killed_run_are_recovered_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(batch=place // 8, group=place % 8 // 4, sample=place % 8, value=float(place % 3)) for place in range(64)
    ]
    stream = write_open_part(tmp_path, table(rows), cut=11, chunk=16)
    found = figures(tmp_path, capsys)
    assert (found["rows"], found["open_parts"]) == (48, 0)
    assert not stream.exists()
    assert stream.with_suffix(".parquet").exists()
    [note] = found["notes"]
    assert "bytes were dropped" in note
