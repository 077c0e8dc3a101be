"""Native rewards beside their originals: ratio of their times, in one run.

    python -m pytest benches/python/bench_rewards.py --benchmark-only

Each is a plain call on the same samples: 32 answers of 20 words, or one of 500 or 2000, with its
reference. Both sides run in turn, and the ratio is that of the medians. The counterpart is the
original if its package is installed, otherwise the same few lines of Python (open-r1's, Google's).
Target: 50 times faster where the original is Python and takes longer than a microsecond a token.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from guerdon import rewards
from tests.rewards import originals

TITLE = "native rewards beside their originals: µs a sample"
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "looked",
    "at",
    "Paris,",
    "where",
    "it",
    "had",
    "been",
    "in",
    "1999",
    "with",
    "an",
    "old",
    "friend",
]
ROUNDS = 7


def _texts(samples: int, words: int, seed: int) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choice(WORDS) for _ in range(words)) for _ in range(samples)]


def _of_words(text: str) -> float:
    words = text.lower().split()
    ngrams = list(zip(*[words[first:] for first in range(3)], strict=False))
    return (1 - len(set(ngrams)) / len(ngrams)) * -1.0


def _followed(text: str) -> float:
    words = re.findall(r"\w+", text)
    return float(len(words) >= 10 and re.search("Paris", text, re.IGNORECASE) is not None and not re.search(",", text))


_calls = count()


def _bleu_of_new_texts(text: str, answer: str) -> float:
    """sacrebleu keeps the tokens of texts that it has seen; of completions it has seen none, but
    their references."""
    return originals.bleu(" " * (next(_calls) % 1000) + text, [answer])


SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["word", "place"],
        "properties": {"word": {"type": "string", "minLength": 1}, "place": {"type": "integer", "minimum": 0}},
        "additionalProperties": False,
    },
}


def _objects(text: str) -> str:
    return json.dumps([{"word": word, "place": place} for place, word in enumerate(text.split(" "))])


def _trl(name: str, *options: Any) -> Callable[[Any], float]:
    made = originals.trl_reward(name, *options)
    if options:
        return lambda ids: made(completion_ids=[ids])[0]
    return lambda text: made([[{"content": text}]])[0]


IFEVAL = {
    "instruction_id_list": ["length_constraints:number_words", "keywords:existence", "punctuation:no_comma"],
    "kwargs": [{"num_words": 10, "relation": "at least"}, {"keywords": ["Paris"]}, {}],
}
# Name, reward, original of (text or ids, reference), words of a text.
CASES: list[tuple[str, Callable[[], Any], Callable[[], Callable[..., float]], int]] = [
    ("exact_match", rewards.exact_match, lambda: lambda text, answer: float(text == answer), 20),
    ("squad_em", rewards.squad_em, lambda: lambda text, answer: originals.em_check(text, [answer]), 20),
    (
        "normalized_match",
        rewards.normalized_match,
        lambda: lambda text, answer: originals.normalized_match(text, [answer]),
        20,
    ),
    ("squad_f1", rewards.squad_f1, lambda: lambda text, answer: originals.squad_f1(text, [answer]), 20),
    ("squad_f1, 500 words", rewards.squad_f1, lambda: lambda text, answer: originals.squad_f1(text, [answer]), 500),
    ("multiple_choice, 500 words", rewards.multiple_choice, lambda: originals.multiple_choice, 500),
    ("rouge_l", rewards.rouge_l, lambda: lambda text, answer: originals.rouge_l(text, [answer]), 20),
    ("rouge_l, 500 words", rewards.rouge_l, lambda: lambda text, answer: originals.rouge_l(text, [answer]), 500),
    ("bleu", rewards.bleu, lambda: _bleu_of_new_texts, 20),
    ("bleu, 500 words", rewards.bleu, lambda: _bleu_of_new_texts, 500),
    (
        "edit_distance, 500 words",
        rewards.edit_distance,
        lambda: lambda text, answer: originals.edit_distance(text, [answer]),
        500,
    ),
    ("repetition_penalty of 2000 words", lambda: rewards.repetition_penalty(of="words"), lambda: _of_words, 2000),
    (
        "repetition_penalty of 2000 ids",
        rewards.repetition_penalty,
        lambda: _trl("get_repetition_penalty_reward", 3, -1.0),
        2000,
    ),
    (
        "soft_overlong of 2000 ids",
        lambda: rewards.soft_overlong(2000, 500),
        lambda: _trl("get_soft_overlong_punishment", 2000, 500),
        2000,
    ),
    ("think_format, 500 words", rewards.think_format, lambda: _trl("think_format_reward"), 500),
    (
        "tag_count, 500 words",
        rewards.tag_count,
        lambda: lambda text: originals.tag_count(text, ["<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>"]),
        500,
    ),
    ("cosine_length, 500 words", lambda: rewards.cosine_length(clamp=False), lambda: originals.cosine_length, 500),
    (
        "json_schema of 20 objects",
        lambda: rewards.json_schema("answer"),
        lambda: originals.json_schema_of_jsonschema,
        20,
    ),
    ("ifeval, three instructions, 500 words", rewards.ifeval, lambda: _followed, 500),
]


def _median(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_beside_the_original(benchmark: Any, tables: Any, case: tuple[Any, ...]) -> None:
    name, make, original_of, words = case
    samples = 32 if words == 20 else 4
    texts, answers = _texts(samples, words, 1), _texts(samples, words, 2)
    if "json" in name:
        texts, answers = [_objects(text) for text in texts], [SCHEMA] * samples  # type: ignore[list-item]
    reward, original = make(), original_of()
    of_ids = "ids" in name
    ids = [[WORDS.index(word) for word in text.split(" ")] for text in texts] if of_ids else []
    given: dict[str, Any] = {"completions": texts, "answer": answers}
    given |= {"completion_ids": ids} if of_ids else {}
    given |= {column: [value] * samples for column, value in IFEVAL.items()} if "ifeval" in name else {}
    alone = of_ids or (any(part in name for part in ("words", "think_format", "ifeval")) and "of 2000" in name)
    takes_one = alone or name.startswith(("think_format", "tag_count", "ifeval"))
    rows: list[tuple[Any, ...]] = [(one,) for one in (ids if of_ids else texts)]
    if not takes_one:
        rows = list(zip(texts, answers, strict=True))
    first = original(*rows[0])  # imports; caches are as warm as they get, but BLEU's of completions
    assert reward(**given)[0] == pytest.approx(first, rel=1e-9)
    rounds = 1 if benchmark.disabled else ROUNDS
    benchmark.pedantic(lambda: reward(**given), rounds=rounds, warmup_rounds=1)
    native = _median(lambda: reward(**given), rounds)
    python = _median(lambda: [original(*row) for row in rows], rounds)
    if not benchmark.disabled:
        cells = {"native": native * 1e6 / samples, "original": python * 1e6 / samples, "ratio": python / native}
        tables.add(TITLE, name, cells, "")
    assert json.dumps(reward(**given))


# Gold answer and answer, of each kind that is decided natively.
MATH = [
    ("18", "18"),
    ("1,234", "1234"),
    ("$\\frac{1}{2}$", "0.5"),
    ("50%", "50\\%"),
    ("$B$", "\\text{(B)}"),
    ("$x=5$", "5"),
]


@pytest.mark.parametrize("words", [20, 500])
def test_math_beside_math_verify(benchmark: Any, tables: Any, words: int) -> None:
    pytest.importorskip("math_verify")
    original = originals.trl_reward("accuracy_reward")
    reward, samples = rewards.math_reward(), 32
    chosen = [MATH[sample % len(MATH)] for sample in range(samples)]
    texts = _texts(samples, words, 1)
    golds = [gold for gold, _ in chosen]
    completions = [f"{text}, so \\boxed{{{answer}}}" for text, (_, answer) in zip(texts, chosen, strict=True)]
    messages = [[{"role": "assistant", "content": completion}] for completion in completions]
    assert reward(completions=completions, solution=golds) == original(messages, golds) == [1.0] * samples
    rounds = 1 if benchmark.disabled else ROUNDS
    benchmark.pedantic(lambda: reward(completions=completions, solution=golds), rounds=rounds, warmup_rounds=1)
    native = _median(lambda: reward(completions=completions, solution=golds), rounds)
    python = _median(lambda: original(messages, golds), rounds)
    if not benchmark.disabled:
        cells = {"native": native * 1e6 / samples, "original": python * 1e6 / samples, "ratio": python / native}
        tables.add(TITLE, f"math_reward, {words} words", cells, "")
