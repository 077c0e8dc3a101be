"""What functions record while they run: put together in sample order, from the attempts that count,
on every lane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, StatefulReward, group_reward, reward
from tests.contract.misbehaving_functions import note
from tests.simple import on_lane

LANES = ("process", "thread", "asyncio")


def recording(completion: str, path: str, log_extra: Any, log_metric: Any) -> float:
    """Records, and fails the first time if its completion says so."""
    attempt = note(path)
    log_extra("attempt", [attempt])
    log_extra("said", [completion])
    log_metric("length", len(completion))
    if completion.startswith("again") and attempt == 0:
        raise ValueError("once more")
    if completion.startswith("never"):
        raise ValueError("never")
    return float(len(completion))


async def arecording(completion: str, path: str, log_extra: Any, log_metric: Any) -> float:
    import asyncio

    await asyncio.sleep(0.002 * (len(completion) % 5))
    return recording(completion, path, log_extra, log_metric)


def recording_rows(completions: list[str], path: list[str], log_extra: Any, log_metric: Any) -> list[float]:
    """TRL's contract."""
    values = [recording(text, where, log_extra, log_metric) for text, where in zip(completions, path, strict=True)]
    log_extra("all", [len(completions)] * len(completions))
    return values


def functions() -> list[Any]:
    return [
        reward(recording, name="process", retries=1),
        reward(recording, name="thread", lane="thread", retries=1),
        reward(arecording, name="asyncio", retries=1),
        reward(recording_rows, name="rows", rowwise=True, retries=1),
    ]


@pytest.mark.parametrize("index", range(4), ids=["process", "thread", "asyncio", "rowwise"])
def test_records_come_in_sample_order_from_the_attempt_that_counts(index: int, tmp_path: Path) -> None:
    texts = [("again" if n % 7 == 3 else "never" if n % 11 == 5 else "x") + "y" * (n % 9) for n in range(40)]
    paths = [str(tmp_path / f"{n}") for n in range(40)]
    with Dispatcher([functions()[index]], workers=2) as made:
        result = made.score(completions=texts, path=paths)
    failed = [n for n, text in enumerate(texts) if text.startswith("never")]
    assert [failure.sample for failure in result.failures()] == failed
    expected = [None if n in failed else text for n, text in enumerate(texts)]
    assert result.extra["said"] == expected
    assert result.extra["attempt"] == [None if t is None else int(t.startswith("again")) for t in expected]
    assert result.metrics["length"] == [float(len(text)) for text in expected if text is not None]
    if index == 3:
        assert result.extra["all"] == [None if text is None else 1 for text in expected]


def test_a_batch_function_records_as_in_the_trainer(tmp_path: Path) -> None:
    """Once per call, whole columns, whatever they hold."""
    with Dispatcher([recording_rows], workers=1) as made:
        texts = ["a", "bb", "ccc"]
        result = made.score(prompts=["p"] * 3, completions=texts, path=[str(tmp_path / text) for text in texts])
    assert result.extra["said"] == texts
    assert result.extra["all"] == [3, 3, 3]
    assert result.metrics["length"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("lane", LANES)
def test_a_groups_records_stand_beside_its_samples(lane: str) -> None:
    def grouped(completions: list[str], log_extra: Any, log_metric: Any) -> list[float]:
        log_extra("rank", list(range(len(completions))))
        log_extra("first", completions[0])
        log_metric("size", len(completions))
        completions.append("the list is the call's own")
        return [1.0] * (len(completions) - 1)

    with Dispatcher([on_lane(grouped, lane, group_reward)], workers=2) as made:
        result = made.score(completions=[str(n) for n in range(12)], num_generations=3)
    assert result.extra["rank"] == [0, 1, 2] * 4
    assert result.extra["first"] == [str(n // 3 * 3) for n in range(12)]
    assert result.metrics["size"] == [3.0] * 4


@pytest.mark.parametrize("lane", LANES)
def test_values_that_cannot_be_logged_fail_nothing(lane: str) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    def odd(completion: str, log_extra: Any, log_metric: Any) -> float:
        import numpy as np

        log_extra("odd", [Odd()])
        log_extra("array", [np.arange(3)])
        log_extra("scalar", [np.float32(0.5)])
        log_metric("nothing", None)
        log_metric("number", np.int64(3))
        return 1.0

    with Dispatcher([on_lane(odd, lane)], workers=1) as made:
        result = made.score(completions=["a", "b"])
    assert result.rewards.ravel().tolist() == [1.0, 1.0], result.failures()
    assert result.extra["array"] == [[0, 1, 2]] * 2
    assert result.extra["scalar"] == [0.5, 0.5]
    assert result.metrics == {"number": [3.0, 3.0]}


@pytest.mark.parametrize("lane", LANES)
def test_a_rewards_score_may_record(lane: str) -> None:
    class Recording(StatefulReward):
        def score(self, completion: str, log_extra: Any) -> Any:
            log_extra("seen", [completion])
            return {"score": 1.0, "half": len(completion) / 2}

        def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
            return scores

    with Dispatcher([reward(Recording(), lane=lane, name="r")], workers=1) as made:
        result = made.score(completions=["a", "bb", "ccc", "dddd"], num_generations=2)
    assert result.extra == {"seen": ["a", "bb", "ccc", "dddd"], "r/half": [0.5, 1.0, 1.5, 2.0]}
