"""``guerdon score`` with rubrics and comparisons."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.cli.conftest import Command, write_rewards, write_rows
from tests.http.server import chat_completion, free_port, question, serving
from tests.http.test_rubric import answer

REWARDS = """
import guerdon

ASK = {{"base_url": "{url}", "model": "m", "retries": 0}}

made = guerdon.rubric({{"correct": "The answer is right.", "clear": "Use no jargon."}}, **ASK)
better = guerdon.pairwise(prompt="<{{completion_a}}> or <{{completion_b}}>?", schedule="all", **ASK)

def plain(completions, **columns):
    return [1.0] * len(completions)
"""
ROWS = [{"prompt": "p", "completion": completion} for completion in ("a", "b without clear")]


def both(path: str, body: dict[str, Any]) -> Any:
    if "Rate the answer" in question(body):
        return answer(path, body)
    return chat_completion("[[A]]" if question(body).startswith("<a>") else "[[B]]")


def test_a_rubric_of_a_file_is_its_columns(guerdon: Command, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data.jsonl", ROWS)
    with serving(both) as server:
        file = write_rewards(tmp_path, REWARDS.format(url=server.url))
        found = guerdon("score", file, data, "--num-generations", "2")
        named = guerdon("score", f"{file}:made", data)
    assert [row["rewards"] for row in found.rows] == [
        {"rubric/correct": 7.0, "rubric/clear": 5.0, "pairwise": found.rows[0]["rewards"]["pairwise"]},
        {"rubric/correct": None, "rubric/clear": None, "pairwise": found.rows[1]["rewards"]["pairwise"]},
    ]
    assert found.rows[0]["rewards"]["pairwise"] > found.rows[1]["rewards"]["pairwise"]
    assert found.rows[1]["status"] == {"rubric/correct": "error", "rubric/clear": "error", "pairwise": "ok"}
    assert [row["rewards"] for row in named.rows] == [
        {"rubric/correct": 7.0, "rubric/clear": 5.0},
        {"rubric/correct": None, "rubric/clear": None},
    ]
    summary = [line.split()[0] for line in named.err.splitlines() if line.startswith("rubric/")]
    assert summary[:2] == ["rubric/correct", "rubric/clear"]


def test_a_judge_whose_server_is_down_waits_no_longer_than_the_batch(guerdon: Command, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    text = f"import guerdon\nlikes = guerdon.judge(base_url={url!r}, model='m', prompt='{{completion}}')\n"
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "a"}] * 12)
    start = time.monotonic()
    ended = guerdon("score", write_rewards(tmp_path, text), data, "--batch-timeout", "1.5")
    assert time.monotonic() - start < 60  # else calls wait five minutes
    assert ended.code == 1
    assert set(ended.rewards("judge")) == {None}
    assert "expected a number above 0" in guerdon("score", "file.py", data, "--batch-timeout", "0").err


def test_a_judge_that_refuses_connections_ends_the_command(guerdon: Command, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    text = (
        f"import guerdon\nlikes = guerdon.judge(base_url={url!r}, model='m', prompt='{{completion}}', name='likes')\n"
    )
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "a"}])
    start = time.monotonic()
    ended = guerdon("score", write_rewards(tmp_path, text), data)
    assert time.monotonic() - start < 60  # else calls wait five minutes
    assert ended.code == 2
    assert f"reward function 'likes': can't connect to {url[7:-3]}: Connection refused" in ended.err


def test_a_dispatcher_of_a_file_may_hold_a_rubric(guerdon: Command, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data.jsonl", ROWS[:1])
    with serving(both) as server:
        text = REWARDS.format(url=server.url) + "\nall_of_them = guerdon.Dispatcher([plain, made])\n"
        ended = guerdon("score", write_rewards(tmp_path, text), data)
    assert ended.rows[0]["rewards"] == {"plain": 1.0, "rubric/correct": 7.0, "rubric/clear": 5.0}
