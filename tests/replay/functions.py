"""Functions of all shapes, and batches whose texts all differ."""

from __future__ import annotations

from typing import Any

from guerdon import StatefulReward, group_reward, reward

SIZE = 4


def batches(count: int = 3, groups: int = 3) -> list[dict[str, Any]]:
    """Batches whose texts all differ."""
    samples = groups * SIZE
    return [
        {
            "prompts": [f"p{batch}-{sample // SIZE}" for sample in range(samples)],
            "completions": [f"{'x' * ((7 * sample + batch) % 11)}{sample}" for sample in range(samples)],
            "answer": [str(sample % 3) for sample in range(samples)],
        }
        for batch in range(count)
    ]


@reward(lane="thread")
def length(text: str) -> float:
    return float(len(text))


@reward(lane="thread")
def moody(completion: str, answer: str) -> float | None:
    if completion.startswith("xxx"):
        raise ValueError(f"no {completion}")
    return None if answer == "2" else float(answer) + len(completion) / 10


@group_reward(lane="thread")
def spread(prompts: list[str], completions: list[str]) -> list[float]:
    assert len(set(prompts)) == 1
    assert len(completions) == SIZE
    longest = max(map(len, completions))
    return [len(completion) / longest for completion in completions]


class CentredReward(StatefulReward):
    def score(self, completion: str) -> float:
        return float(len(completion))

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        known = [score for score in scores if score is not None]
        return [None if score is None else score - sum(known) / len(known) for score in scores]


def whole_batch(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """The rank of each in its batch, which only the whole batch tells."""
    return [float(sorted(completions).index(completion)) for completion in completions]


def all_shapes() -> list[Any]:
    return [length, moody, spread, reward(CentredReward(), name="centred", lane="thread"), whole_batch]
