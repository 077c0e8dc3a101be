"""Metrics of a batch in a trainer's log."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import guerdon
from guerdon import Dispatcher, RegistrationError, RetryAfter, reward
from guerdon._batch.trainer.metrics import DEFERRALS, FALLBACK, MAIN, _spread, metrics_of
from tests.http.server import serving

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
COMMON = {"failed_frac", "timeout_frac", "error_frac", "crashed_frac", "abstained_frac", "deferrals"}
TIMES = {"run_p50_s", "run_p90_s", "run_p99_s", "queue_p50_s", "queue_p99_s"}
SPREAD = {"group_std", "no_spread_frac"}
REQUESTS = {"requests"}
TOKENS = {"unknown", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"}


@reward(lane="thread", pure=True)
def length(text: str) -> float | None:
    return None if text == "none" else float(len(text))


@reward(lane="thread", run_if={"length": "> 1"})
def gated(text: str) -> float:
    return 0.5


def names(metrics: dict[str, float], function: str) -> set[str]:
    return {name.removeprefix(f"guerdon/{function}/") for name in metrics if name.startswith(f"guerdon/{function}/")}


def test_spread_within_groups() -> None:
    with Dispatcher([length, gated]) as dispatcher:
        texts = ["a", "abc", "a", "a", "none", "none", "a", "none"]
        metrics = metrics_of(dispatcher.score(completions=texts, num_generations=2))
    # one group of four differs, by 1 and 3
    assert metrics["guerdon/length/no_spread_frac"] == 0.75
    assert metrics["guerdon/length/group_std"] == pytest.approx(np.std([1.0, 3.0], ddof=1) / 4)
    assert metrics["guerdon/gated/skipped_frac"] == 7 / 8
    assert metrics["guerdon/length/abstained_frac"] == 3 / 8
    assert metrics["guerdon/gated/no_spread_frac"] == 1.0
    assert names(metrics, "length") == COMMON | TIMES | SPREAD | {"shared_frac"}
    assert names(metrics, "gated") == COMMON | TIMES | SPREAD | {"skipped_frac"}


@pytest.mark.parametrize("which", ["main", "all"])
def test_a_log_line_has_six_metrics_of_each_function_unless_all_are_asked_for(which: Any) -> None:
    logged: dict[str, float] = {}
    refused: list[str] = []

    async def asks(text: str) -> float:
        if text not in refused:
            refused.append(text)
            raise RetryAfter(0.0)
        return 1.0

    with Dispatcher([length, reward(asks)], log_metrics=which) as dispatcher:
        dispatcher.reward_funcs[0](completions=["a", "abc"], log_extra=None, log_metric=logged.__setitem__)
    assert "guerdon/tail_s" in logged
    assert names(logged, "length") == (MAIN if which == "main" else COMMON | TIMES | {"shared_frac"})
    assert names(logged, "asks") == (MAIN | {DEFERRALS} if which == "main" else COMMON | TIMES)
    assert logged["guerdon/asks/deferrals"] == 2
    assert dispatcher.replace(workers=1).options["log_metrics"] == which


def test_an_unknown_choice_of_metrics_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"log_metrics='some': expected 'main' .* or 'all'"):
        Dispatcher([length], log_metrics="some")  # type: ignore[arg-type]


def test_groups_of_one_have_no_spread_to_speak_of() -> None:
    with Dispatcher([length]) as dispatcher:
        assert not names(metrics_of(dispatcher.score(completions=["a", "abc"])), "length") & SPREAD


@given(
    rows=st.integers(2, 5).flatmap(
        lambda size: st.lists(
            st.lists(st.sampled_from([0.0, 0.1, 1.0, -3.5, float("nan")]), min_size=size, max_size=size),
            min_size=1,
            max_size=6,
        )
    )
)
def test_spread_is_that_of_each_groups_numbers(rows: list[list[float]]) -> None:
    kept = [[value for value in np.float32(row).tolist() if value == value] for row in rows]
    stds = [float(np.std(row, ddof=1)) if len(set(row)) > 1 else 0.0 for row in kept]
    found = _spread(np.array(rows, dtype=np.float32))
    assert found["group_std"] == pytest.approx(sum(stds) / len(stds))
    assert found["no_spread_frac"] == pytest.approx(sum(len(set(row)) < 2 for row in kept) / len(kept))


def test_the_tail_of_a_batch_submitted_whole_is_all_of_it() -> None:
    with Dispatcher([length]) as dispatcher:
        result = dispatcher.score(completions=["a", "abc"])
    assert result.tail_s == result.elapsed_s == metrics_of(result)["guerdon/tail_s"]


def test_the_tail_of_a_batch_that_streamed_begins_with_its_last_sample() -> None:
    with Dispatcher([length]) as dispatcher:
        stream = dispatcher.stream(num_generations=1)
        stream.add(completions=["a"])
        time.sleep(0.2)
        stream.add(completions=["b"])
        stream.finish()
        result = stream.result()
    assert 0 <= result.tail_s <= result.elapsed_s - 0.2


def test_a_judge_has_tokens_and_a_service_has_none() -> None:
    def answer(path: str, body: dict[str, Any]) -> object:
        if path.endswith("/score"):
            return {"score": 0.5}
        return {
            "choices": [{"message": {"content": "7"}}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 3},
        }

    with serving(answer) as server:
        judge = guerdon.judge(
            server=guerdon.Server(server.url, price={"input": 1e6, "output": 2e6}),
            model="m",
            prompt="{completion}",
            name="judged",
        )
        service = guerdon.http_reward(f"{server.url}/score", columns=("completion",), score="score", name="served")
        with Dispatcher([length, judge, service]) as dispatcher:
            metrics = metrics_of(dispatcher.score(completions=["a", "b"], num_generations=2))
    assert metrics["guerdon/judged/prompt_tokens"] == 22
    assert metrics["guerdon/judged/completion_tokens"] == 6
    assert metrics["guerdon/judged/cost"] == pytest.approx(22 + 12)
    assert names(metrics, "judged") == COMMON | TIMES | SPREAD | REQUESTS | TOKENS | {"cost", "shared_frac"}
    assert names(metrics, "served") == COMMON | TIMES | SPREAD | REQUESTS
    assert names(metrics, "length") == COMMON | TIMES | SPREAD | {"shared_frac"}


def test_every_metric_is_in_the_documents_table() -> None:
    part = DOCS.read_text("utf-8").partition("## In the trainer's log")[2].partition("\n## ")[0]
    rows = "\n".join(line.partition(" | ")[0] for line in part.splitlines() if line.startswith("| `"))
    written = set(re.findall(r"`/?(\w+)`", rows)) | set(re.findall(r"`guerdon/(\w+)`", rows))
    made = COMMON | TIMES | SPREAD | REQUESTS | TOKENS | {"cost", "skipped_frac", "shared_frac", "cached_frac"}
    assert written == made | {"tail_s", FALLBACK}
    main = set(re.findall(r"`/?(\w+)`", rows.partition("`error_frac`")[0]))
    assert main == MAIN
