"""The form of a completion: its tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from guerdon.errors import RegistrationError
from guerdon.rewards.native_reward import COMPLETION, NativeReward, build

if TYPE_CHECKING:
    from typing import Unpack

    from guerdon.rewards.native_reward import KernelOptions

__all__ = ["tag_count", "think_format"]

TAGS: Final = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
"""Those that open-r1 counts."""


def think_format(**options: Unpack[KernelOptions]) -> NativeReward:
    """1.0 for a completion that begins with its reasoning in ``<think>…</think>``, else 0.0.

    Formula: ``float(bool(re.match(r"^<think>(?!.*<think>)(.*?)</think>.*$", completion, re.DOTALL
    | re.MULTILINE)))``.
    Source: TRL 1.16, ``trl.rewards.think_format_reward``.

    Args:
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.think_format()(completions=["<think>Why?</think>So.", "So."])
        [1.0, 0.0]
    """
    return build(think_format, {}, (COMPLETION,), options)


def tag_count(tags: Sequence[str] = TAGS, **options: Unpack[KernelOptions]) -> NativeReward:
    """The share of some texts that occur in the completion exactly once.

    Formula: ``sum(completion.count(tag) == 1 for tag in tags) / len(tags)``.
    Source: open-r1 0.1, ``tag_count_reward`` of ``open_r1.rewards``, whose four tags are the
    default.

    Args:
        tags: The texts.
        options: As for `think_format`.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> from guerdon import rewards
        >>> rewards.tag_count(["<a>", "</a>"])(completions=["<a>1</a>", "<a><a>1</a>"])
        [1.0, 0.5]
    """
    given: object = tags
    listed: list[object] = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
    if not listed or not all(isinstance(tag, str) and tag for tag in listed):
        raise RegistrationError(f"tag_count(): tags={tags!r}: expected texts, one at least.")
    return build(tag_count, {"tags": listed}, (COMPLETION,), options, tags=listed)
