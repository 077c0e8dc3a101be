"""The functions that native rewards stand for, as plain functions of one sample; each imports its
package when it is called."""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def rouge_l(text: str, references: Sequence[str], measure: str = "fmeasure") -> float:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    return float(getattr(scorer.score_multi(list(references), text)["rougeL"], measure))


def bleu(text: str, references: Sequence[str], **options: Any) -> float:
    sacrebleu = pytest.importorskip("sacrebleu")
    return float(sacrebleu.sentence_bleu(text, list(references), **options).score / 100)


def edit_distance(text: str, references: Sequence[str]) -> float:
    levenshtein = pytest.importorskip("rapidfuzz.distance").Levenshtein
    return max(levenshtein.normalized_similarity(text, reference) for reference in references)


def em_check(text: str, references: Sequence[str]) -> float:
    module = pytest.importorskip("verl.utils.reward_score.search_r1_like_qa_em")
    return float(module.em_check(text, list(references)))


def squad_f1(text: str, references: Sequence[str]) -> float:
    """The F1 of evaluate-v2.0.py, by its formula."""

    def words(one: str) -> list[str]:
        plain = "".join(letter for letter in one.lower() if letter not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", plain).split()

    def f1(found: list[str], wanted: list[str]) -> float:
        if not found or not wanted:
            return float(found == wanted)
        common = sum((Counter(found) & Counter(wanted)).values())
        if common == 0:
            return 0.0
        precision, recall = common / len(found), common / len(wanted)
        return (2 * precision * recall) / (precision + recall)

    return max(f1(words(text), words(reference)) for reference in references)


def normalized_match(text: str, references: Sequence[str]) -> float:
    """The score of evaluate's exact_match, with words one space apart."""

    def normal(one: str) -> str:
        return " ".join(one.lower().translate(str.maketrans("", "", string.punctuation)).split())

    return float(any(normal(reference) == normal(text) for reference in references))


def multiple_choice(text: str, answer: str) -> float:
    found = re.search(r"(?i)Answer[ \t]*:[ \t]*\$?([A-D])\$?", text)
    return float(found is not None and found[1] == answer)


def tag_count(text: str, tags: Sequence[str]) -> float:
    return sum(text.count(tag) == 1 for tag in tags) / len(tags)


def cosine_length(text: str, answer: str, max_len: int = 1000) -> float:
    """open-r1's, with its usual values, where what is equal is right."""
    low, high = (0.5, 1.0) if text == answer else (-0.5, -1.0)
    return low + 0.5 * (high - low) * (1.0 + math.cos(len(text) / max_len * math.pi))


def json_schema(text: str, schema: Any, formats: bool = False) -> float:
    validator_for = pytest.importorskip("jsonschema_rs").validator_for
    try:
        value = json.loads(text)
    except ValueError:
        return 0.0
    return float(validator_for(schema, validate_formats=formats).is_valid(value))


def json_schema_of_jsonschema(text: str, schema: Any) -> float:
    """The score of the package jsonschema, which is Python."""
    validators = pytest.importorskip("jsonschema.validators")
    try:
        value = json.loads(text)
    except ValueError:
        return 0.0
    return float(validators.validator_for(schema)(schema).is_valid(value))


def trl_reward(name: str, *options: Any) -> Callable[..., list[float]]:
    """A reward function of TRL, made with these options if it takes any."""
    found: Callable[..., Any] | None = getattr(pytest.importorskip("trl.rewards"), name, None)
    if found is None:
        pytest.skip(f"this TRL has no {name}")
    return found(*options) if options else found
