"""Hypothesis strategies for what reward functions are given. Hypothesis is imported when one is
made.

Texts are short, at most a few hundred characters, so that many examples fit into memory and time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from guerdon._system.extras import pip_install
from guerdon.profile.forms import FORMS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["completions", "conversations", "groups", "rows"]

LONGEST: Final = 200
_TEXTS: Final = (
    *("", " ", "\n", "I don't know.", "I'm sorry, but I can't help with that.", "<think>", "</think>", "<answer>"),
    *("\\boxed{", "\\boxed{}", "####", "nan", "inf", "None", "0", "\u200b", "\u202e42", "\uff14\uff12", "\u00b2"),
    *("\U0001f600", "e\u0301", "a\u0000b"),
)


def completions(answers: SearchStrategy[str] | None = None) -> SearchStrategy[str]:
    """Completions as texts: answers in the usual forms, whole or cut off, odd texts, any text.

    Args:
        answers: Final answers. Default: whole numbers and short words.

    Raises:
        ImportError: hypothesis is not installed.

    Examples:
        >>> from hypothesis import find
        >>> find(completions(), lambda text: "boxed{" in text and text.endswith("}"))
        '\\\\boxed{}'
    """
    st = _strategies()
    finals = _finals(st) if answers is None else answers
    shaped = st.builds(lambda form, final: form.render(final), st.sampled_from(FORMS), finals)
    cut = st.builds(lambda text, part: text[: len(text) * part // 8], shaped, st.integers(1, 7))
    texts: SearchStrategy[str] = st.one_of(st.sampled_from(_TEXTS), shaped, cut, st.text(max_size=LONGEST))
    return texts


def conversations(
    answers: SearchStrategy[str] | None = None, *, turns: int = 3
) -> SearchStrategy[list[dict[str, str]]]:
    """Completions as lists of messages, the last of the assistant.

    Args:
        answers: As for `completions`.
        turns: The most turns of the assistant, with a user's or a tool's message between them.

    Raises:
        ImportError: hypothesis is not installed.

    Examples:
        >>> from hypothesis import find
        >>> find(conversations(), lambda messages: True)
        [{'role': 'assistant', 'content': ''}]
    """
    st = _strategies()
    texts = completions(answers)
    between = st.builds(
        lambda role, before, text: [{"role": "assistant", "content": before}, {"role": role, "content": text}],
        st.sampled_from(("user", "tool")),
        texts,
        texts,
    )
    earlier = st.lists(between, max_size=max(0, turns - 1))
    last = st.builds(lambda text: {"role": "assistant", "content": text}, texts)
    found: SearchStrategy[list[dict[str, str]]] = st.builds(
        lambda pairs, end: [*(message for pair in pairs for message in pair), end], earlier, last
    )
    return found


def rows(
    columns: Mapping[str, SearchStrategy[Any]] | None = None, *, conversational: bool = False
) -> SearchStrategy[dict[str, Any]]:
    """Rows with ``prompt``, ``completion`` and columns.

    Args:
        columns: By name. Default: ``answer``, the final answer as text; half of the completions
            give it then.
        conversational: Prompts and completions are lists of messages.

    Raises:
        ImportError: hypothesis is not installed.

    Examples:
        >>> from hypothesis import find
        >>> sorted(find(rows(), lambda row: row["completion"] == row["answer"]))
        ['answer', 'completion', 'prompt']
    """
    st = _strategies()

    def row(values: dict[str, Any]) -> SearchStrategy[dict[str, Any]]:
        given = values.get("answer")
        finals = st.just(given) | _finals(st) if isinstance(given, str) else None
        completion: SearchStrategy[Any] = conversations(finals) if conversational else completions(finals)
        fields: dict[str, SearchStrategy[Any]] = {"prompt": _prompts(st, conversational), "completion": completion}
        built: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
            {**fields, **{name: st.just(value) for name, value in values.items()}}
        )
        return built

    found: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        dict(columns) if columns is not None else {"answer": _finals(st)}
    ).flatmap(row)
    return found


def groups(
    columns: Mapping[str, SearchStrategy[Any]] | None = None, *, size: int = 4, conversational: bool = False
) -> SearchStrategy[list[dict[str, Any]]]:
    """The rows of one group: the same prompt and columns, `size` completions.

    Args:
        columns: As for `rows`.
        conversational: Likewise.
        size: Completions of the prompt.

    Raises:
        ImportError: hypothesis is not installed.

    Examples:
        >>> from hypothesis import find
        >>> len({row["prompt"] for row in find(groups(size=3), lambda rows: True)})
        1
    """
    st = _strategies()
    many = st.lists(rows(columns, conversational=conversational), min_size=size, max_size=size)
    found: SearchStrategy[list[dict[str, Any]]] = many.map(
        lambda made: [{**made[0], "completion": row["completion"]} for row in made]
    )
    return found


def _finals(st: Any) -> SearchStrategy[str]:
    words = st.sampled_from(("Oslo", "blue", "carbon dioxide", "A", "True", "3.5", "1,250", "\\frac{1}{2}"))
    found: SearchStrategy[str] = st.integers(-9999, 9999).map(str) | words
    return found


def _prompts(st: Any, conversational: bool) -> SearchStrategy[Any]:
    texts = st.sampled_from(("What is it?", "1 + 1 =", "")) | st.text(max_size=LONGEST)
    found: SearchStrategy[Any] = (
        texts.map(lambda text: [{"role": "user", "content": text}]) if conversational else texts
    )
    return found


def _strategies() -> Any:
    try:
        import hypothesis.strategies
    except ImportError:
        raise ImportError(
            f"the strategies of guerdon.testing need hypothesis: {pip_install('testing')}. The assertions need nothing."
        ) from None
    return hypothesis.strategies
