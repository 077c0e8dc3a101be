"""The functions that native rewards stand for, as plain functions of one sample; each imports its
package when it is called."""

from __future__ import annotations

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


def trl_reward(name: str, *options: Any) -> Callable[..., list[float]]:
    """A reward function of TRL, made with these options if it takes any."""
    found: Callable[..., Any] | None = getattr(pytest.importorskip("trl.rewards"), name, None)
    if found is None:
        pytest.skip(f"this TRL has no {name}")
    return found(*options) if options else found
