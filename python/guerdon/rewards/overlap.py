"""Similarity of a completion to a reference: ROUGE-L, BLEU, edit distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guerdon._functions.options import flag
from guerdon._lanes.native.columns import KernelColumn
from guerdon.rewards.answers import _tag
from guerdon.rewards.native_reward import COMPLETION, NativeReward, build

if TYPE_CHECKING:
    from typing import Unpack

    from guerdon.rewards.native_reward import KernelOptions

__all__ = ["bleu", "edit_distance", "rouge_l"]


def rouge_l(
    column: str = "answer",
    *,
    measure: Literal["fmeasure", "precision", "recall"] = "fmeasure",
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """ROUGE-L: how much of their words the completion and a reference have in common, in order.

    Formula: with ``L`` the length of the longest common subsequence of words, ``P = L / words of
    the completion``, ``R = L / words of the reference`` and ``F = 2PR / (P + R)``. Words are runs
    of ``[a-z0-9]`` after ``str.lower()``; it has no stemmer. If there are several references, the
    one with the greatest ``F`` counts, the first of those. Source: rouge-score 0.1.2,
    ``RougeScorer(["rougeL"]).score_multi``, to the bit.

    Args:
        column: As for `guerdon.rewards.exact_match`, like ``options``.
        measure: Which of the three.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.rouge_l()(completions=["the cat sat on a mat"], answer=["The cat is on the mat."])
        [0.6666666666666666]
    """
    given = {"column": column, "measure": measure}
    return build(rouge_l, given, (COMPLETION, KernelColumn(column, "references")), options, measure=measure)


def bleu(
    column: str = "answer",
    *,
    lowercase: bool = False,
    smooth: Literal["exp", "floor", "add-k", "none"] = "exp",
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """BLEU of one completion, from 0 to 1.

    Formula: ``B · exp(mean of log p_n)`` over the n-grams of up to four tokens that the completion
    is long enough for; ``p_n`` is the share of its n-grams that a reference has, smoothed where it
    is 0, and ``B = exp(1 - r / c)`` for a completion of ``c`` tokens that is shorter than the
    closest reference, of ``r``. Tokens are those of mteval's ``13a``.
    Source: sacrebleu 2.6, ``sentence_bleu(…).score / 100``, equal as float32 (Python 3.12 sums
    floats in another way than 3.11).

    Args:
        column: As for `guerdon.rewards.exact_match`, like ``options``.
        lowercase: Compare lower case.
        smooth: What an n-gram length without a match counts, with sacrebleu's default values.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> [score] = rewards.bleu()(completions=["the cat sat on the mat"], answer=["the cat sat on a mat"])
        >>> round(score, 4)
        0.5373
    """
    own = {"lowercase": flag("bleu", "lowercase", lowercase), "smooth": smooth}
    fields = COMPLETION, KernelColumn(column, "references")
    return build(bleu, {"column": column, **own}, fields, options, **own)


def edit_distance(column: str = "answer", *, tag: str | None = None, **options: Unpack[KernelOptions]) -> NativeReward:
    """Similarity by edit distance, from 0 to 1: 1.0 for equal texts.

    Formula: ``1 - d / max(len(completion), len(reference))``, where ``d`` is the fewest characters
    to insert, delete and replace (Levenshtein); 1.0 for two empty texts. If there are several
    references, the greatest counts. Source: rapidfuzz 3.14,
    ``distance.Levenshtein.normalized_similarity``, to the bit.

    Args:
        column: As for `guerdon.rewards.exact_match`, like ``tag`` and ``options``.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.edit_distance()(completions=["kitten"], answer=["sitting"])
        [0.5714285714285714]
    """
    given = {"column": column, "tag": tag}
    return build(edit_distance, given, (COMPLETION, KernelColumn(column, "references")), options, tag=_tag(tag))
