"""A journal has what the result shows, on every lane and for every kind of batch."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher, Journal, Server, StatefulReward, group_reward, judge, reward
from tests.http.billing import PRICE, Billing
from tests.http.server import serving
from tests.journal.written_rows import matches, rows_of
from tests.simple import answer_is, length, rank, trl_style


def test_each_cell_is_one_row(tmp_path: Path) -> None:
    functions = [length, answer_is, rank, trl_style]
    with Dispatcher(
        functions, weights=[1, 2, 0.5, 0.25], journal=tmp_path / "rewards", max_failure_rate=1.0
    ) as dispatcher:
        state = SimpleNamespace(global_step=17)
        answers = ["a", "bad", "none", "d"] * 3
        result = dispatcher.score(
            prompts=["p"] * 12, completions=list("abcdefghijkl"), num_generations=4, answer=answers, trainer_state=state
        )
        dispatcher.close()
        rows = rows_of(tmp_path / "rewards")
        matches(rows, result)
    assert {row["step"] for row in rows} == {17}
    assert {row["rank"] for row in rows} == {0}
    assert len({row["run"] for row in rows}) == len({row["batch"] for row in rows}) == 1
    assert {row["function"]: row["weight"] for row in rows} == dict(
        zip(result.functions, [1, 2, 0.5, 0.25], strict=True)
    )
    by_status = {row["status"] for row in rows if row["function"] == "answer_is"}
    assert by_status == {"ok", "error", "abstained"}
    assert all((row["value"] is not None) == (row["status"] == "ok") for row in rows)
    for row in rows:
        assert len(row["version"]) == 16
        assert abs(row["submitted"].timestamp() - time.time()) < 60
    assert {type(row["prompt_tokens"]) for row in rows} == {type(None)}


def test_an_open_batch_is_kept_with_its_texts(tmp_path: Path) -> None:
    with Dispatcher([length, answer_is, rank], journal=Journal(tmp_path, texts=True, columns=["answer"])) as dispatcher:
        stream = dispatcher.stream(num_generations=2, trainer_state={"global_step": 3})
        for number in range(6):
            text = f"text {number}"
            stream.add(prompts=[f"prompt {number}"], completions=[text], answer=[text])
            if number % 2:
                next(iter(stream.groups()))  # which lets values go
        stream.finish()
        result = stream.result()
    rows = rows_of(tmp_path)
    matches(rows, result)
    for row in rows:
        number = row["sample"]
        texts = (f"prompt {number}", f"text {number}", f"text {number}")
        assert (row["prompt"], row["completion"], row["column_answer"]) == texts
    assert {row["step"] for row in rows} == {3}


def test_groups_that_are_delivered_early_and_cells_that_are_skipped(tmp_path: Path) -> None:
    @reward
    async def slow(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return 1.0

    @reward(run_if={"slow": "> 2"}, otherwise=0.25)
    def gated(completion: str) -> float:
        return 1.0

    with Dispatcher([slow, gated], journal=tmp_path) as dispatcher:
        seconds = [0.0, 60.0, 0.0, 0.0]
        result = dispatcher.score(completions=["a"] * 4, num_generations=2, seconds=seconds, group_quorum=1)
    rows = rows_of(tmp_path)
    matches(rows, result)
    skipped = [row for row in rows if row["function"] == "gated" and row["status"] == "skipped"]
    assert skipped
    assert {(row["reward"], row["value"], row["run_s"]) for row in skipped} == {(0.25, None, 0.0)}
    assert "cancelled" in {row["status"] for row in rows}


def test_treatment_of_failures_is_kept_beside_them(tmp_path: Path) -> None:
    def broken(completion: str) -> float:
        raise ValueError("no " + "x" * 9000)

    functions = [
        reward(broken, name="zero", on_failure=0.0, lane="thread"),
        reward(broken, name="left_out", lane="thread"),
    ]
    with Dispatcher(functions, journal=tmp_path, max_failure_rate=1.0) as dispatcher:
        dispatcher.score(completions=["a"])
    zero, left_out = sorted(rows_of(tmp_path), key=lambda row: str(row["function"]), reverse=True)
    assert (zero["status"], zero["value"], zero["reward"]) == ("error", None, 0.0)
    assert (left_out["status"], left_out["value"], left_out["reward"]) == ("error", None, None)
    assert zero["reason"].startswith("ValueError: no xxx")
    assert len(zero["reason"]) <= 4096
    assert "broken" in zero["traceback"]


def test_logs_of_functions_are_kept(tmp_path: Path) -> None:
    @reward(lane="thread")
    def parsed(completion: str, log_extra: Any, log_metric: Any) -> dict[str, Any]:
        log_extra("gold", completion.upper())
        log_metric("size", len(completion))
        return {"score": 1.0, "found": [1, 2]}

    @group_reward(lane="thread")
    def grouped(completions: list[str], log_extra: Any, **columns: Any) -> list[float]:
        log_extra("place", list(range(len(completions))))
        log_extra("all", "same")
        return [0.0] * len(completions)

    def batched(completions: list[str], log_extra: Any, **columns: Any) -> list[float]:
        log_extra("number", list(range(len(completions))))
        return [0.0] * len(completions)

    with Dispatcher([parsed, grouped, batched], journal=tmp_path) as dispatcher:
        dispatcher.score(completions=["a", "bb", "ccc", "dddd"], num_generations=2)
    extra = {(row["function"], row["sample"]): json.loads(row["extra"]) for row in rows_of(tmp_path)}
    assert extra["parsed", 1] == {"found": [1, 2], "gold": "BB", "size": 2}
    assert extra["grouped", 3] == {"all": "same", "place": 1}
    assert extra["batched", 2] == {"number": 2}


def test_answers_and_usage_of_judges_are_kept_by_sample(tmp_path: Path) -> None:
    billing = Billing()
    with serving(billing) as server:
        asked = judge(
            server=Server(server.url, price=PRICE),
            model="m",
            prompt="{completion}",
            name="graded",
            keep_answers=True,
            retries=2,
        )
        with Dispatcher([asked, length], journal=tmp_path) as dispatcher:
            # The second sample's first answer has no score: both attempts are paid.
            result = dispatcher.score(completions=["0", "1 words", "2"], num_generations=3)
    rows = [row for row in rows_of(tmp_path) if row["function"] == "graded"]
    usage = result.usage["graded"]
    for name in ("prompt_tokens", "completion_tokens", "cost"):
        assert sum(row[name] for row in rows) == pytest.approx(usage[name])
    assert rows[1]["prompt_tokens"] == 2 * 101
    assert [row["answer"] for row in rows] == ["Score: 0", "Score: 1", "Score: 2"]
    assert json.loads(rows[0]["extra"])["model"] == "judge-2026"
    others = [row for row in rows_of(tmp_path) if row["function"] == "length"]
    assert {(row["prompt_tokens"], row["cost"], row["answer"]) for row in others} == {(None, None, None)}


def test_a_stateful_function_shows_what_its_group_became(tmp_path: Path) -> None:
    class ShapedReward(StatefulReward):
        def score(self, completion: str) -> float:
            return float(len(completion))

        def finish_group(self, scores: list[float | None]) -> list[float | None]:
            return [None, *((score or 0.0) * 10 for score in scores[1:])]

    with Dispatcher([ShapedReward()], journal=tmp_path) as dispatcher:
        result = dispatcher.score(completions=["a", "bb", "ccc"], num_generations=3)
    rows = rows_of(tmp_path)
    matches(rows, result)
    assert [row["value"] for row in rows] == [None, 20.0, 30.0]


def test_outcomes_from_a_cache_are_rows_too(tmp_path: Path) -> None:
    function = reward(
        lambda text: float(len(text)), name="size", lane="thread", cache=tmp_path / "cache", cache_version="1"
    )
    for _ in range(2):
        with Dispatcher([function], journal=tmp_path / "rewards") as dispatcher:
            dispatcher.score(completions=["a", "bb"])
    rows = rows_of(tmp_path / "rewards")
    assert [(row["value"], row["attempts"]) for row in rows] == [(1.0, 1), (2.0, 1), (1.0, 0), (2.0, 0)]
    assert len({row["version"] for row in rows}) == 1


def test_versions_tell_one_source_from_another(tmp_path: Path) -> None:
    def scaled(factor: float) -> Any:
        return reward(lambda text: len(text) * factor, name="scaled", lane="thread")

    for factor in (1.0, 2.0, 1.0):
        with Dispatcher([scaled(factor)], journal=tmp_path) as dispatcher:
            dispatcher.score(completions=["a"])
    first, second, third = (row["version"] for row in rows_of(tmp_path))
    assert first == third != second
