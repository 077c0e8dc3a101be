"""Length and repetition: rewards that shape how a completion is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from guerdon._functions.options import flag
from guerdon._system.units import FLOAT32_MAX, integer, number
from guerdon.errors import RegistrationError
from guerdon.rewards.answers import exact_match
from guerdon.rewards.native_reward import COMPLETION, IDS, TOKENS, NativeReward, build, kernel_spec

if TYPE_CHECKING:
    from typing import Unpack

    from guerdon.rewards.native_reward import KernelOptions

__all__ = ["cosine_length", "repetition_penalty", "soft_overlong"]


def repetition_penalty(
    ngram_size: int = 3,
    max_penalty: float = -1.0,
    *,
    of: Literal["ids", "words"] = "ids",
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """A penalty for n-grams that the completion repeats: 0.0 for none.

    Formula: ``(1 - different n-grams / n-grams) · max_penalty``; 0.0 where there are fewer tokens
    than an n-gram has.
    Source: of ids TRL 1.16, ``trl.rewards.get_repetition_penalty_reward``; of words (those of
    ``str.lower().split()``) open-r1 0.1, ``get_repetition_penalty_reward`` of ``open_r1.rewards``.

    Args:
        ngram_size: Tokens of an n-gram, at least 1.
        max_penalty: What a completion that repeats everything comes near, 0 or less.
        of: ``"ids"``: the completion's token ids, ``completion_ids``. ``"words"``: its words.
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.repetition_penalty(2, of="words")(completions=["a b a b", "a b c"])
        [-0.33333333333333337, 0.0]
        >>> rewards.repetition_penalty(2)(completions=["", ""], completion_ids=[[1, 2, 3], [5, 5, 5, 5, 5]])
        [0.0, -0.75]
    """
    size, penalty = _whole("repetition_penalty", "ngram_size", ngram_size, 1), number(max_penalty)
    if not -FLOAT32_MAX <= penalty <= 0:
        raise _wrong("repetition_penalty", "max_penalty", max_penalty, "a number, 0 or less, that float32 can hold")
    if of not in ("ids", "words"):
        raise _wrong("repetition_penalty", "of", of, "'ids' or 'words'")
    given = {"ngram_size": size, "max_penalty": penalty, "of": of}
    of_words = of == "words"
    fields = (COMPLETION if of_words else IDS,)
    kernel = {"of_words": of_words, "ngram_size": size, "max_penalty": penalty}
    return build(repetition_penalty, given, fields, options, **kernel)


def cosine_length(
    correct: NativeReward | None = None,
    *,
    column: str = "answer",
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    max_len: int = 1000,
    clamp: bool = True,
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """A reward that falls with the length of a right completion and rises with that of a wrong
    one.

    Formula: ``low + (high - low) / 2 · (1 + cos(length / max_len · pi))``, the length in
    characters. Applied to a right completion, ``low`` and ``high`` are ``min_value_correct`` and
    ``max_value_correct``; for a wrong one ``max_value_wrong`` and ``min_value_wrong``. Source:
    open-r1 0.1, ``get_cosine_scaled_reward`` of ``open_r1.rewards``, with ``clamp=False``; TRL
    1.16, ``trl.rewards.get_cosine_scaled_reward``, which clamps, but counts tokens. There what
    math-verify takes for equal is right.

    Args:
        correct: A native reward function that says what is right: what it gives more than 0. Where
            it abstains, so does this. Default: ``exact_match(column)``.
        column: What the default compares with.
        min_value_wrong: For an empty wrong completion.
        max_value_wrong: For a wrong one of ``max_len``.
        min_value_correct: For a right one of ``max_len``.
        max_value_correct: For an empty right one.
        max_len: Characters.
        clamp: A longer completion counts as one of ``max_len``. Without it the cosine turns there:
            a right one of twice the length is worth as much as an empty one.
        options: As for `repetition_penalty`.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> right = rewards.squad_em(column="answer", tag="answer")
        >>> cosine = rewards.cosine_length(right, max_len=40)
        >>> [round(score, 3) for score in cosine(completions=["<answer>4</answer>", "4"], answer=[4, 4])]
        [0.789, -0.999]
    """
    own = "cosine_length"
    right = exact_match(column) if correct is None else correct
    if not isinstance(right, NativeReward):
        raise _wrong(own, "correct", correct, "a reward function of guerdon.rewards")
    kernel, fields = kernel_spec(right)
    if fields[0] != COMPLETION:
        raise _wrong(own, "correct", correct, "one that scores the text of a completion, not its token ids")
    values = {
        "min_value_wrong": min_value_wrong,
        "max_value_wrong": max_value_wrong,
        "min_value_correct": min_value_correct,
        "max_value_correct": max_value_correct,
    }
    for name, value in values.items():
        if not -FLOAT32_MAX <= number(value) <= FLOAT32_MAX:
            raise _wrong(own, name, value, "a number that float32 can hold")
    checked: dict[str, Any] = {name: number(value) for name, value in values.items()}
    checked |= {"max_len": _whole(own, "max_len", max_len, 1), "clamp": flag(own, "clamp", clamp)}
    given = {"correct": correct, "column": column, **checked}
    return build(cosine_length, given, fields, options, correct=kernel, **checked)


def soft_overlong(max_completion_len: int, soft_punish_cache: int, **options: Unpack[KernelOptions]) -> NativeReward:
    """A penalty for long completions: 0.0 up to a length, then a line down to -1.0.

    Formula: with ``n`` token ids, ``M = max_completion_len`` and ``C = soft_punish_cache``: 0 for
    ``n <= M - C``, ``(M - C - n) / C`` up to ``M``, -1 beyond it.
    Source: TRL 1.16, ``trl.rewards.get_soft_overlong_punishment`` (DAPO's equation 13).

    Args:
        max_completion_len: Tokens from which on the penalty is whole.
        soft_punish_cache: So many tokens before that it begins; 0 for no line.
        options: As for `repetition_penalty`.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.soft_overlong(100, 20)(completions=["", ""], completion_ids=[[1] * 80, [1] * 90])
        [0.0, -0.5]
    """
    lengths = {
        "max_completion_len": _whole("soft_overlong", "max_completion_len", max_completion_len, 0),
        "soft_punish_cache": _whole("soft_overlong", "soft_punish_cache", soft_punish_cache, 0),
    }
    return build(soft_overlong, lengths, (TOKENS,), options, **lengths)


def _wrong(function: str, option: str, value: object, expected: str) -> RegistrationError:
    return RegistrationError(f"{function}(): {option}={value!r}: expected {expected}.")


def _whole(function: str, option: str, value: object, least: int) -> int:
    found = integer(value)
    if found is None or not least <= found < 1 << 53:
        raise _wrong(function, option, value, f"a whole number of at least {least}")
    return found
