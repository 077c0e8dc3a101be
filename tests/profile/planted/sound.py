"""Robust functions, of all the usual kinds: none of them may be called wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from guerdon import group_reward, reward
from tests.profile.planted.corpus import robust
from tests.profile.planted.rows import CHATS, CHOICES, FACTS, LATEX, NUMBERS, REASONED, ROLLOUTS, SOLUTIONS


def _number(text: str) -> float | None:
    text = text.strip().rstrip(".").replace(",", "")
    if not re.fullmatch(r"[-+]?[0-9]{1,30}(\.[0-9]{1,30})?", text):
        return None
    return float(text)


def _last_tag(text: str) -> str | None:
    """The text of the one answer tag behind the reasoning; None where there are several."""
    if "<think>" in text and "</think>" not in text:
        return None
    behind = text.rsplit("</think>", 1)[-1]
    found = re.findall(r"<answer>([^<]*)</answer>", behind)
    return found[0].strip() if len(found) == 1 else None


def _boxed(text: str) -> str | None:
    """The text of the one box, if it ends; None where there are several."""
    if text.count("\\boxed{") != 1:
        return None
    depth, start = 0, text.index("\\boxed{") + len("\\boxed{")
    for place in range(start, min(len(text), start + 500)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth < 0:
            return text[start:place].strip()
    return None


@robust(NUMBERS)
@reward
def exact(completion: str, answer: str) -> float | None:
    if not answer:
        return None
    return float(completion.strip() == answer)


@robust(FACTS, row_alone=True)
@reward
def normalised(text: str, answer: str | None) -> float | None:
    def plain(value: str) -> str:
        return " ".join(re.sub(r"[^\w\s]", "", value.casefold()).split())

    if not answer or not plain(answer):
        return None
    return float(plain(text) == plain(answer))


@robust(NUMBERS, row_alone=True)
@reward
def numeric_tolerance(text: str, answer: str | None) -> float | None:
    given, wanted = _number(text), _number(answer or "")
    if wanted is None:
        return None
    return float(given is not None and math.isclose(given, wanted, rel_tol=1e-4))


@robust(REASONED, row_alone=True)
@reward
def form_and_answer(text: str, answer: str) -> float:
    """A fifth for the form, the rest for the answer."""
    if not re.fullmatch(r"<think>\n[^<]*</think>\s*<answer>[^<]*</answer>\s*", text):
        return 0.0
    return 0.2 + 0.8 * float(_last_tag(text) == answer and bool(answer))


@robust(SOLUTIONS, row_alone=True)
@reward
def hashes(text: str, answer: str) -> float | None:
    """GSM8K's form, at the end of the completion."""
    wanted = _number(answer.rsplit("####", 1)[-1]) if answer else None
    if wanted is None:
        return None
    lines = text.rstrip().splitlines()
    found = lines[-1].removeprefix("####") if lines and text.count("####") == 1 and lines[-1].startswith("####") else ""
    return float(_number(found) == wanted)


@robust(CHOICES, row_alone=True)
@reward
def choice(text: str, answer: str) -> float:
    found = re.fullmatch(r"(?:the answer is )?\(?([A-D])\)?\.?", text.strip(), re.IGNORECASE)
    return float(found is not None and found.group(1).upper() == answer)


@robust(NUMBERS, row_alone=True)
@reward
def json_answer(text: str, answer: str) -> float:
    try:
        found = json.loads(text) if len(text) < 10_000 else None
    except (ValueError, RecursionError):
        return 0.0
    return float(
        isinstance(found, dict) and isinstance(found.get("answer"), str) and found["answer"].strip() == answer != ""
    )


@robust(CHATS)
def conversational(completions: list[list[dict[str, str]]], answer: list[str], **columns: Any) -> list[float]:
    return [
        float(bool(right) and _number(messages[-1]["content"]) == _number(right))
        for messages, right in zip(completions, answer, strict=True)
    ]


@robust(NUMBERS)
def trl_plain(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [
        1.0 if right and completion.strip() == right else -1.0
        for completion, right in zip(completions, answer, strict=True)
    ]


@robust(NUMBERS)
@reward(batch_size=16)
def many_at_once(texts: list[str], answer: list[str]) -> list[float]:
    return [float(bool(right) and text.strip() == right) for text, right in zip(texts, answer, strict=True)]


@robust(REASONED)
def whole_form(completions: list[str], **columns: Any) -> list[float]:
    """A reward of the form alone, as it should be written."""
    pattern = re.compile(r"<think>[^<]*</think>\s*<answer>[^<]*</answer>\s*")
    return [float(pattern.fullmatch(text) is not None) for text in completions]


@robust(ROLLOUTS)
@reward
def brevity(completion_ids: list[int]) -> float:
    return 1.0 / (1.0 + len(completion_ids) / 100)


@robust(ROLLOUTS)
@group_reward
def unlike_others(completions: list[str]) -> list[float]:
    return [1 / completions.count(completion) for completion in completions]


@robust(ROLLOUTS)
@group_reward
def above_the_mean(completions: list[str], answer: list[str]) -> list[float]:
    """Right answers in their group, centred."""
    scores = [float(bool(right) and text.strip() == right) for text, right in zip(completions, answer, strict=True)]
    return [score - sum(scores) / len(scores) for score in scores]


@robust(FACTS)
@reward(lane="thread")
async def awaited(text: str, answer: str) -> float:
    return float(bool(answer) and text.strip().casefold() == answer.casefold())


WHOLE = [
    {**row, "gold": f"<think>\nStep by step to {row['answer']}.\n</think>\n<answer>{row['answer']}</answer>"}
    for row in NUMBERS
]
EXPRESSIONS: list[tuple[str, Any, str | None, Callable[..., float]]] = [
    ("tag_exact", REASONED, None, lambda text, answer: bool(answer) and _last_tag(text) == answer),
    ("whole_completions", WHOLE, "{gold}", lambda text, answer: bool(answer) and _last_tag(text) == answer),
    ("boxed_exact", LATEX, None, lambda text, solution: _boxed(text) == _boxed(solution) is not None),
    ("soft_length", ROLLOUTS, None, lambda text: max(0.0, 1.0 - max(0, len(text) - 200) / 400)),
    # Right answers lose a little for length, wrong ones are all the same.
    (
        "shaped_by_length",
        NUMBERS,
        None,
        lambda text, answer: (1 - min(len(text), 1000) / 10_000) if answer and text.strip() == answer else 0.0,
    ),
    (
        "own_form",
        NUMBERS,
        "Therefore: {answer}!",
        lambda text, answer: bool(answer) and text.strip() == f"Therefore: {answer}!",
    ),
]
for _name, _rows, _reference, _function in EXPRESSIONS:
    _options = {} if _reference is None else {"reference": _reference}
    robust(_rows, row_alone=True, **_options)(reward(_function, name=_name))
