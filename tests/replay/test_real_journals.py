"""Replays of journals that dispatchers wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import guerdon
from guerdon import Dispatcher, Journal, group_reward, reward

COMPLETIONS = ["four", "it is 4", "5", "", "hmm", "six 🧑‍🚀", "4", "44"]
BATCH: dict[str, Any] = {
    "prompts": ["2+2="] * 4 + ["3+1="] * 4,
    "completions": COMPLETIONS,
    "answer": [4, "4", None, {"value": 4}, 4, 4, 4, 4],
}


@reward(lane="thread")
def length(text: str) -> float | None:
    if text == "hmm":
        raise ValueError("hmm")
    return float(len(text)) if text else None


@reward(lane="thread")
def typed(completion: str, answer: Any) -> dict[str, Any]:
    return {"score": float(len(str(answer))), "kind": type(answer).__name__}


@group_reward(lane="thread")
def place(prompts: list[str], completions: list[str]) -> list[float]:
    return [float(sorted(completions).index(completion)) for completion in completions]


def whole(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [float(len(set(completions)) + index) for index in range(len(completions))]


FUNCTIONS = [length, typed, place, whole]


def test_the_same_functions_give_the_same_values(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", texts=True, columns=["answer"], run="first")
    with Dispatcher(FUNCTIONS, journal=journal, weights=[1.0, 0.5, 0.5, 0.5], workers=1) as dispatcher:
        for step in range(2):
            dispatcher.score(**BATCH, num_generations=4, trainer_state={"global_step": step}, batch_timeout=300)
    found = guerdon.replay(tmp_path / "j", FUNCTIONS, workers=1)
    assert (found.rows, found.samples, found.groups) == (64, 16, 4)
    assert found.differences == 0
    assert all((each["diff"]["compared"], each["diff"]["moved"]) == (16, 0) for each in found.functions.values())
    assert found.functions["length"]["status"] == {"ok": 12, "abstained": 2, "error": 2}
    assert (found.total["compared"], found.total["moved"]) == (16, 0)


def test_a_dispatcher_with_a_journal_does_not_journal_its_replay(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    with Dispatcher([length, place], journal=Journal(folder, texts=True)) as dispatcher:
        dispatcher.score(**BATCH, num_generations=4)
    with Dispatcher([length, place], journal=Journal(folder, texts=True)) as dispatcher:
        before = sorted(path.name for path in folder.iterdir())
        assert guerdon.replay(folder, dispatcher).differences == 0
        assert sorted(path.name for path in folder.iterdir()) == before
