"""Math answers, compared as math-verify compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guerdon._native import math_decision
from guerdon.rewards.math.helper import ask
from guerdon.rewards.math.lenient import prepared
from guerdon.rewards.math.plain_gold import boxed, same_words, unsigned
from guerdon.rewards.math.reward import MathReward
from guerdon.rewards.native_reward import KernelOptions

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["math_equal", "math_reward"]


def math_equal(
    gold: str, answer: str, *, strict: bool = False, notation: Literal["math-verify", "lenient"] = "math-verify"
) -> bool:
    r"""Returns whether an answer is the gold one.

    Numbers, fractions, percents, single letters and equal LaTeX are decided in about a microsecond;
    what isn't certain goes to math-verify, in a worker that ends after 30 s: such a pair counts as
    different, with a warning.

    Formula: ``verify(parse(gold), parse(answer))``, which is not symmetric: an answer ``(1, 2)``
    matches the gold ``$1 < x < 2$``, not the other way round.
    Source: math-verify 0.9, ``math_verify.verify`` and ``math_verify.parse`` with their defaults.

    Args:
        gold: The right answer: ``"18"``, ``r"$\frac{1}{2}$"``, or a text that ends in it.
        answer: What it is compared with, in the same forms.
        strict: Where math-verify is lax, what is right: 9 % is not 9, nor 18.5 % 18.5, 0.3333333 is
            not 1/3, the letter ``A`` is not ``a``. It holds for pairs that are decided natively.
        notation: ``"lenient"``: what math-verify reads wrongly or not is read, too: ``\frac18``,
            mixed numbers, ``1.5e3``, ``12\,000``, ½, √2; units that differ make answers differ, and
            rational numbers are compared exactly.

    Raises:
        ImportError: The pair needs math-verify, which is not installed.

    Examples:
        >>> from guerdon.rewards import math_equal
        >>> math_equal("1,234.50", r"$\frac{2469}{2}$"), math_equal("#### 18", "It is 19.")
        (True, False)
    """
    if notation == "lenient":
        found = prepared(gold, answer, alone=True)
        if not isinstance(found, tuple):
            return bool(found)
        (gold, answer), strict = found, True
    if not set(gold) & set("$\\") and same_words(gold, (boxed(answer) or [answer])[-1], strict=strict):
        return True  # math-verify reads nothing in such a gold answer
    gold = unsigned(gold)
    decision = math_decision(gold, answer, reward=False, strict=strict)
    if decision is None:
        [value] = ask([(gold, answer)], reward=False)
        return bool(value)
    return decision is True


def math_reward(
    column: str = "solution",
    *,
    strict: bool = False,
    notation: Literal["math-verify", "lenient"] = "math-verify",
    **options: Unpack[KernelOptions],
) -> MathReward:
    r"""1.0 where the answer of the completion is the gold one, 0.0 where it isn't, and no reward
    where the gold text has no answer in it. A gold answer that is a letter or a few words is
    compared with the last box, without regard to case.

    It reads a completion's ``\boxed{…}``, or LaTeX behind the word "answer". A worker decides
    numbers, fractions, letters and equal LaTeX natively, and asks math-verify where that isn't
    certain.

    Formula: ``verify(parse(gold), parse(completion))``, the completion with TRL's configuration.
    Source: TRL 1.16, ``trl.rewards.accuracy_reward``, with its timeouts; math-verify 0.9.

    Args:
        column: The gold answers, a text a sample; None and NaN abstain, other values are an
            ``error``. verl calls it ``ground_truth``.
        strict: As for `math_equal`.
        notation: As for `math_equal`. With ``"lenient"`` the answer is the last box behind
            ``</think>``, or else what is behind the last ``####`` or "Answer:".
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> right = rewards.math_reward()
        >>> right(completions=[r"So \boxed{\frac{1}{2}}.", r"\boxed{2}", "1/2"], solution=["1/2"] * 3)
        [1.0, 0.0, 0.0]
    """
    return MathReward(math_reward, column, strict, notation, options, KernelOptions.__annotations__)
