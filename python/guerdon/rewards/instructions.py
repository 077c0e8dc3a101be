"""Instructions that a completion follows: IFEval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guerdon._functions.options import flag
from guerdon._lanes.native.columns import KernelColumn
from guerdon.rewards.native_reward import COMPLETION, NativeReward, build

if TYPE_CHECKING:
    from typing import Unpack

    from guerdon.rewards.native_reward import KernelOptions

__all__ = ["ifeval"]


def ifeval(
    column: str = "instruction_id_list",
    *,
    arguments: str = "kwargs",
    score: Literal["all", "share"] = "all",
    loose: bool = False,
    undecided: Literal["abstain", "leave_out"] = "leave_out",
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """Returns whether a completion follows its IFEval instructions.

    Formula: ``score="all"``: 1.0 if it follows all, else 0.0; ``"share"``: followed / all.
    Source: lm-eval 0.4.13, ``test_instruction_following_strict`` and ``…_loose`` of
    ``lm_eval.tasks.ifeval.utils`` (Google's ``instruction_following_eval``, with two checkers
    mended), for each instruction that is decided here.

    Undecided are ``language:response_language``, ``length_constraints:number_sentences`` and
    ``change_case:capital_word_frequency``, which take a language detector or a trained tokenizer; a
    keyword, section mark or postscript mark with more than ASCII letters, digits and plain marks in
    it, which the original takes as a pattern; and what lacks an argument, which the original then
    draws at random. ``change_case:english_capital`` and ``english_lowercase`` are decided by the
    case alone.

    Args:
        column: A list of instruction ids a sample; None abstains.
        arguments: The column with a list of their arguments, a dict or None each.
        score: See above.
        loose: It is enough to follow an instruction without the first or last line, or both, and
            with asterisks left out.
        undecided: ``"leave_out"``: such instructions don't count; a sample with no others has no
            score. ``"abstain"``: a sample with one has no score, whatever its completion is.
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> follows = rewards.ifeval(score="share")
        >>> ids = ["punctuation:no_comma", "length_constraints:number_words"]
        >>> words = [{}, {"num_words": 3, "relation": "at least"}]
        >>> follows(completions=["Yes I do", "Yes, so"], instruction_id_list=[ids] * 2, kwargs=[words] * 2)
        [1.0, 0.0]
    """
    own = {"score": score, "loose": flag("ifeval", "loose", loose), "undecided": undecided}
    fields = COMPLETION, KernelColumn(column, "json"), KernelColumn(arguments, "json")
    return build(ifeval, {"column": column, "arguments": arguments, **own}, fields, options, **own)
