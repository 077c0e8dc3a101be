"""Answers compared with references: exact, normalised, as SQuAD counts, multiple choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._functions.options import flag
from guerdon._lanes.native.columns import KernelColumn
from guerdon.errors import RegistrationError
from guerdon.rewards.native_reward import COMPLETION, NativeReward, build

if TYPE_CHECKING:
    from typing import Unpack

    from guerdon.rewards.native_reward import KernelOptions

__all__ = ["exact_match", "multiple_choice", "normalized_match", "squad_em", "squad_f1"]


def exact_match(column: str = "answer", *, tag: str | None = None, **options: Unpack[KernelOptions]) -> NativeReward:
    """1.0 where the completion is a reference, character by character, else 0.0.

    Formula: ``float(completion == reference)``; with several references, the greatest.
    Source: Python's ``==``; Hugging Face evaluate 0.4, ``exact_match`` with its defaults.

    Args:
        column: What it compares with: a text or a list of texts a sample; a number is the text that
            ``str`` makes of it; None and NaN are not references, and without one it abstains.
        tag: Compare what the last ``<tag>…</tag>`` of the completion holds, without white space
            around it; a completion without one gets 0.0.
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> exact = rewards.exact_match(column="answer", tag="answer")
        >>> exact(completions=["So <answer> 4 </answer>", "4"], answer=[4, 4])
        [1.0, 0.0]
    """
    given = {"column": column, "tag": tag}
    return build(exact_match, given, (COMPLETION, KernelColumn(column, "references")), options, tag=_tag(tag))


def normalized_match(
    column: str = "answer",
    *,
    tag: str | None = None,
    ignore_case: bool = True,
    ignore_punctuation: bool = True,
    ignore_numbers: bool = False,
    ignore_space: bool = True,
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """1.0 where the completion is a reference once both are normalised, else 0.0.

    Formula: ``float(n(completion) == n(reference))`` where ``n`` lowers the case, then drops
    characters of ``string.punctuation``, then those of ``string.digits``, then joins the words of
    ``str.split()`` with one space, each if its option is on.
    Source: Hugging Face evaluate 0.4, ``exact_match`` with ``ignore_case``, ``ignore_punctuation``
    and ``ignore_numbers``; ``ignore_space`` is ours.

    Args:
        column: As for `exact_match`, like ``tag`` and ``options``.
        ignore_case: Compare lower case.
        ignore_punctuation: Leave out ASCII punctuation.
        ignore_numbers: Leave out ASCII digits.
        ignore_space: Runs of white space count as one space, and as none at the ends.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.normalized_match()(completions=["  Paris. ", "Rome"], answer=["paris", ["Milan", "ROME!"]])
        [1.0, 1.0]
    """
    flags = {
        "ignore_case": ignore_case,
        "ignore_punctuation": ignore_punctuation,
        "ignore_numbers": ignore_numbers,
        "ignore_space": ignore_space,
    }
    for option, value in flags.items():
        flag("normalized_match", option, value)
    given = {"column": column, "tag": tag, **flags}
    fields = COMPLETION, KernelColumn(column, "references")
    return build(normalized_match, given, fields, options, tag=_tag(tag), **flags)


def squad_em(column: str = "answer", *, tag: str | None = None, **options: Unpack[KernelOptions]) -> NativeReward:
    """1.0 where the completion is a reference but for case, ASCII punctuation, English articles and
    white space, else 0.0.

    Formula: ``float(n(completion) == n(reference))``, ``n`` as for `squad_f1`. Source: SQuAD's
    ``evaluate-v2.0.py``, ``compute_exact``; verl 0.9, ``em_check`` of
    ``verl.utils.reward_score.search_r1_like_qa_em``. If ``tag="answer"`` is given, it is that
    module's ``compute_score``, without its penalty for more than ten tags.

    Args:
        column: As for `exact_match`, like ``tag`` and ``options``.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.squad_em()(completions=["The  Eiffel Tower!"], answer=[["Louvre", "Eiffel tower"]])
        [1.0]
    """
    given = {"column": column, "tag": tag}
    return build(squad_em, given, (COMPLETION, KernelColumn(column, "references")), options, tag=_tag(tag))


def squad_f1(column: str = "answer", *, tag: str | None = None, **options: Unpack[KernelOptions]) -> NativeReward:
    r"""The F1 of the completion's words and a reference's; with several references, the greatest.

    Formula: ``2PR / (P + R)``, where ``P`` and ``R`` are the shares of the completion's and of the
    reference's words that both have, each as often as in both. Words are those of ``str.split()``
    after ``str.lower()``, without ``string.punctuation``, with ``\b(a|an|the)\b`` made a space. 1.0
    where neither has words, 0.0 where one has none.
    Source: SQuAD's ``evaluate-v2.0.py``, ``compute_f1``.

    Args:
        column: As for `exact_match`, like ``tag`` and ``options``.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.squad_f1()(completions=["in the Eiffel Tower"], answer=["Eiffel Tower, Paris"])
        [0.6666666666666666]
    """
    given = {"column": column, "tag": tag}
    return build(squad_f1, given, (COMPLETION, KernelColumn(column, "references")), options, tag=_tag(tag))


def multiple_choice(column: str = "answer", *, choices: str = "ABCD", **options: Unpack[KernelOptions]) -> NativeReward:
    r"""1.0 where the completion's last answer names the right choice, else 0.0.

    Formula: ``float(found == reference)``, where ``found`` is the letter behind the last
    ``Answer:``, ``<answer>`` or ``answer is``, or the one in a later ``\boxed{}``, in upper case;
    without either, that of an answer of one line which is a choice: ``B``, ``(b)``, ``B) Paris``.
    ``**Answer:** B``, ``Answer: (b)`` and ``answer is $\boxed{B}$`` are read; a word that begins
    with the letter, a letter with a question mark, and two letters beside each other are none.
    Source: after OpenAI's simple-evals, ``gpqa_eval.py``, whose pattern reads fewer forms, takes
    the first one, and takes the first letter of a word.

    Args:
        column: The right letter, or a list of right ones; None abstains.
        choices: The letters, from A on without a gap.
        options: As for `exact_match`.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.multiple_choice()(completions=["I think so. **Answer:** (B)", "Answer: Because"], answer=["B", "B"])
        [1.0, 0.0]
    """
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    given_choices: object = choices
    if not isinstance(given_choices, str) or not choices or not letters.startswith(choices):
        raise RegistrationError(f"multiple_choice(): choices={choices!r}: expected letters from A on, such as 'ABCD'.")
    given = {"column": column, "choices": choices}
    return build(multiple_choice, given, (COMPLETION, KernelColumn(column, "references")), options, last=choices[-1])


def _tag(tag: object) -> str | None:
    if tag is None or (isinstance(tag, str) and tag and not set(tag) & set("<>/")):
        return tag
    raise RegistrationError(f"tag={tag!r}: expected the name of a tag, such as 'answer', or None.")
