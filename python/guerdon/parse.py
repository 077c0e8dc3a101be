"""Parsers of a judge's answer: the ``parse=`` of `guerdon.judge`.

An answer that two careful people could read differently is an `error` that shows the answer, never
a guess: several different scores, a number in no form of a verdict, an answer that ``max_tokens``
cut where its score may have gone on. The judge is asked again while it has ``retries`` left, with
the reason (`Parse.without_repair`).

Options of all parsers but `logprob`:

- ``which``: None requires one score in the answer, given once or more often; ``"first"`` or
  ``"last"`` takes that one of several. "first" reads an answer that was cut off; the others don't,
  as more could come.
- ``range``: lowest and highest score, ``(0, 10)``; others are an `error`. It says also what scores
  count up to: of 10, "9/10" is 9, and "4/5" is an `error`. None takes 0 to 100
  (`regex`: any number).
- ``reasoning``: ``"strip"`` leaves out what the judge thought aloud (``<think>…</think>`` and the
  like); ``"keep"`` reads it, too, before the answer.

>>> from guerdon import parse
>>> parse.number(range=(0, 10)).read("**Score: 8/10**")
8.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import Literal

from guerdon._system.units import FLOAT32_MAX
from guerdon._system.units import number as as_number
from guerdon.errors import RegistrationError

__all__ = ["Parse", "choice", "json", "logprob", "number", "regex", "rubric", "tag", "yes_no"]

Kind = Literal["number", "tag", "regex", "json", "yes_no", "choice", "logprob", "rubric", "function"]
Which = Literal["first", "last"]
Reasoning = Literal["strip", "keep"]


@dataclass(frozen=True)
class Parse:
    """A way to read a score; made by the functions of this module.

    ``kind="function"`` means a parser of the user's, which `guerdon.judge` calls in a worker.
    """

    kind: Kind
    value: str = ""
    words: tuple[tuple[str, float], ...] = ()
    others: tuple[str, ...] = ()
    top: int = 0
    which: Which | None = None
    range: tuple[float, float] | None = None
    reasoning: Reasoning = "strip"
    repair: bool = True

    def without_repair(self) -> Parse:
        """The parser of a judge that is asked again in the same words, and not told what was wrong
        with its answer.

        Examples:
            >>> number(range=(0, 10)).without_repair()
            Parse(kind='number', range=(0.0, 10.0), repair=False)
        """
        return replace(self, repair=False)

    def read(self, answer: str, *, cut: bool = False, reasoning: str | None = None) -> float | None:
        """The score in an answer, as a judge of this parser reads it: for trying a parser on
        answers that you have.

        Args:
            cut: The answer ended at ``max_tokens`` (its finish reason is ``length``).
            reasoning: What the server gave apart from the answer, ``reasoning_content``.

        Returns:
            The score; None for the ``null`` of JSON, which abstains.

        Raises:
            ValueError: There is no score, or what is there could be read in more than one way.

        Examples:
            >>> number(which="last").read("Draft score: 7\\nScore: 8")
            8.0
            >>> number().read("Mark 7-8")
            Traceback (most recent call last):
            ValueError: "Mark 7-8", which can be read in more than one way, in the answer "Mark 7-8"
        """
        from guerdon._native import read_score

        return read_score(self, answer, cut=cut, reasoning=reasoning)

    def __repr__(self) -> str:
        named: dict[str, object] = {"value": self.value, "words": dict(self.words), "others": self.others}
        named |= {"which": self.which, "range": self.range}
        shown = "".join(f", {name}={value!r}" for name, value in named.items() if value)
        kept = ", reasoning='keep'" if self.reasoning == "keep" else ""
        kept += "" if self.repair else ", repair=False"
        return f"Parse(kind={self.kind!r}{shown}{kept})"


def number(
    which: Which | None = None,
    range: tuple[float, float] | None = None,
    *,
    label: str | None = None,
    reasoning: Reasoning = "strip",
) -> Parse:
    """The score of an answer whose form says that it is the verdict. The default.

    It is a sentence with a label ("Score: 7") or a verb ("I'd give it 7/10"), 7/10 in the first or
    last sentence, or 7 by itself in the first or last line. Words beside it that such a sentence
    does not have ("at most", "not", "GPT-4 says") make it an `error`, and so do another number or a
    retraction behind it.

    Args:
        which: None, ``"first"`` or ``"last"``, see the module, as the other two.
        range: Lowest and highest score.
        label: What answers in another language call the score, as in ``"得分：7"``. Nothing may
            follow the score.
        reasoning: ``"strip"`` or ``"keep"``.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> number(range=(0, 10))
        Parse(kind='number', range=(0.0, 10.0))
        >>> number().read("Two of 3 claims hold. Score: 9/10")
        9.0
        >>> number(label="Nota").read("Nota: 9")
        9.0
    """
    named = "" if label is None else _text("number", "label", label)
    return _parse("number", named, which=which, range=range, reasoning=reasoning)


def tag(
    name: str,
    which: Which | None = None,
    range: tuple[float, float] | None = None,
    *,
    reasoning: Reasoning = "strip",
) -> Parse:
    """The verdict within ``<name>…</name>``: ``7``, ``7/10`` or ``Score: 7``.

    The tag's sentence may have words of a verdict only ("Final score: <score>7</score>"): a tag
    that is talked about is an `error`.

    Args:
        name: Of the tag; case and attributes don't matter.
        which: None, ``"first"`` or ``"last"``, see the module, as the other two.
        range: Lowest and highest score.
        reasoning: ``"strip"`` or ``"keep"``.

    Raises:
        RegistrationError: `name` is empty, or an option is wrong.

    Examples:
        >>> tag("score")
        Parse(kind='tag', value='score')
        >>> tag("score").read("Two of the 3 claims hold. <score>**6** / 10</score>")
        6.0
    """
    return _parse("tag", _text("tag", "name", name), which=which, range=range, reasoning=reasoning)


def regex(
    pattern: str,
    words: Mapping[str, float] | None = None,
    which: Which | None = None,
    range: tuple[float, float] | None = None,
    *,
    reasoning: Reasoning = "strip",
) -> Parse:
    """The first group (without groups: the whole) of the matches of a pattern.

    Args:
        pattern: In the syntax of Rust's ``regex``, which is Python's without look-around and
            backreferences. It has classes of categories and scripts (``\\p{Lu}``,
            ``\\p{Greek}``), and none of ages and text boundaries.
        words: Scores by match, ignoring case; without it the match must be a number.
        which: None, ``"first"`` or ``"last"``, see the module, as the other two.
        range: Lowest and highest score.
        reasoning: ``"strip"`` or ``"keep"``.

    Raises:
        RegistrationError: `words` has values other than numbers. `guerdon.judge` refuses an invalid
            pattern.

    Examples:
        >>> regex(r"Verdict: (good|bad)", {"good": 1.0, "bad": 0.0})
        Parse(kind='regex', value='Verdict: (good|bad)', words={'good': 1.0, 'bad': 0.0})
    """
    pairs = () if words is None else _labels("regex", "words", words)
    text = _text("regex", "pattern", pattern)
    return _parse("regex", text, words=pairs, which=which, range=range, reasoning=reasoning)


def json(
    field: str,
    which: Which | None = None,
    range: tuple[float, float] | None = None,
    *,
    reasoning: Reasoning = "strip",
) -> Parse:
    """A field of the JSON that the answer is or holds (in a code block, among words and LaTeX).

    Args:
        field: With dots for fields of fields, ``"verdict.score"``. Its value is a number, a
            boolean, a text that is a number or n/top, or null, which abstains.
        which: Which of several objects with this field counts: None, ``"first"`` or ``"last"``, see
            the module, as the other two. One that can't be read is an `error`.
        range: Lowest and highest score.
        reasoning: ``"strip"`` or ``"keep"``.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> json("score")
        Parse(kind='json', value='score')
        >>> json("score").read(r'As $\\frac{1}{2}$ is right: {"score": 1}')
        1.0
    """
    return _parse("json", _text("json", "field", field), which=which, range=range, reasoning=reasoning)


def yes_no(which: Which | None = None, *, reasoning: Reasoning = "strip") -> Parse:
    """1.0 if the answer's verdict is "yes", 0.0 if it is "no".

    It counts as a separate clause at the beginning or end of a sentence: "Yes, it holds", "Answer:
    no", "The sum is wrong, so no". A condition ("Yes, if n > 0") or a retraction is an `error`; an
    answer is as clear with "yes" as with "no". "Yes/No" as an echo of the question is passed over.

    Args:
        which: None, ``"first"`` or ``"last"``, see the module.
        reasoning: ``"strip"`` or ``"keep"``.

    Examples:
        >>> yes_no()
        Parse(kind='yes_no')
        >>> yes_no().read("**Yes**, it is correct.")
        1.0
    """
    return _parse("yes_no", which=which, reasoning=reasoning)


def choice(
    labels: Sequence[str] | Mapping[str, float],
    which: Which | None = None,
    *,
    reasoning: Reasoning = "strip",
) -> Parse:
    """The score of the label that the answer chose: ``"Verdict: A"``, ``"[[A]]"``, ``"**A**"``.

    A label counts as a separate clause at the beginning or end of a sentence: alone, behind
    "Winner:", "the verdict is", "I choose" or ", so". Labels elsewhere are passed over; an answer
    with no others is an `error`.

    Args:
        labels: Best to worst, for scores from 1 to 0 in even steps; or a dict of labels and their
            scores. Labels of one letter must be written as here, others in any case.
        which: None, ``"first"`` or ``"last"``, see the module.
        reasoning: ``"strip"`` or ``"keep"``.

    Raises:
        RegistrationError: There are fewer than two labels, or two that differ only in case.

    Examples:
        >>> choice(["A", "B"]).read("A is longer, but B is right.\\nVerdict: B")
        0.0
        >>> choice({"good": 1, "fair": 0.4, "bad": 0}).read("Fair.")
        0.4
    """
    if isinstance(labels, Sequence) and not isinstance(labels, str) and len(labels) > 1:
        steps = len(labels) - 1
        if all(isinstance(label, str) for label in labels) and len(set(labels)) == len(labels):
            labels = {label: 1.0 - index / steps for index, label in enumerate(labels)}
    pairs = _labels("choice", "labels", labels)
    if len(pairs) < 2:
        raise RegistrationError(f"parse.choice(labels={labels!r}): expected at least two labels.")
    return _parse("choice", words=pairs, which=which, reasoning=reasoning)


def rubric(
    criteria: Sequence[str] | Mapping[str, float],
    layout: Literal["json", "tags"] = "json",
    range: tuple[float, float] | None = None,
    *,
    reasoning: Reasoning = "strip",
) -> Parse:
    """The weighted mean of the scores of several criteria in one answer.

    Args:
        criteria: Their names, or a dict of names and weights above 0. Each needs a score; one that
            is null abstains, and so does the answer.
        layout: ``"json"`` for ``{"accuracy": 8, "clarity": {"reason": "…", "score": 7}}``, or
            ``"tags"`` for ``<accuracy>8</accuracy>``.
        range: Lowest and highest score of each.
        reasoning: ``"strip"`` or ``"keep"``.

    Raises:
        RegistrationError: An option is wrong.

    Examples:
        >>> rubric({"accuracy": 3, "clarity": 1}).read('{"accuracy": 8, "clarity": 4}')
        7.0
    """
    if isinstance(criteria, Sequence) and not isinstance(criteria, str):
        if not all(isinstance(each, str) for each in criteria) or len(set(criteria)) < len(criteria):
            raise RegistrationError(
                f"parse.rubric(criteria={criteria!r}): expected a list of names, each given once, or a dict of names and weights."
            )
        criteria = dict.fromkeys(criteria, 1.0)
    weights = _labels("rubric", "criteria", criteria)
    if not all(weight > 0 for _, weight in weights):
        raise RegistrationError(f"parse.rubric(criteria={criteria!r}): expected weights above 0.")
    if layout not in ("json", "tags"):
        raise RegistrationError(f"parse.rubric(layout={layout!r}): expected 'json' or 'tags'.")
    return _parse("rubric", layout, words=weights, range=range, reasoning=reasoning)


def logprob(token: str, *others: str, top: int = 20, expected: bool = False) -> Parse:
    """The probability of `token` as the first one of the answer: a soft score from 0 to 1.

    Args:
        token: Surrounding spaces are ignored; tokens that differ only in them are added up.
        others: Its rivals. With them the score is the token's share: ``logprob("Yes", "No")`` is
            P(Yes) ÷ (P(Yes) + P(No)).
        top: How many of the most likely tokens the server is asked for.
        expected: The tokens are numbers, and the score is their mean, weighted by their
            probabilities, as in G-Eval: ``logprob("1", "2", "3", "4", "5", expected=True)``.

    The judge is asked for one token, unless ``max_tokens`` says otherwise.

    A server lists only the most likely tokens. One that it doesn't list counts as 0 where that
    can't be far off: its probability is at most
    ``u = min(1 - sum(listed), least of the listed but one)`` (servers add the token that was chosen
    to the most likely ones, so the very least says nothing). With P(No) listed and P(Yes) not, the
    score is between 0 and u ÷ (u + P(No)); with P(Yes) alone, between P(Yes) ÷ (P(Yes) + u) and 1.
    A score that may be off by more than 0.01 (with ``expected`` of the range of the numbers) is an
    `error` that gives the bounds; so is one where neither is listed. A larger `top` helps, if the
    server supports it.

    Examples:
        >>> logprob("Yes", "No")
        Parse(kind='logprob', value='Yes', others=('No',))
    """
    rivals = tuple(_text("logprob", "others", other) for other in others)
    tokens = [_text("logprob", "token", token).strip(), *(rival.strip() for rival in rivals)]
    if len(set(tokens)) < len(tokens):
        raise RegistrationError(f"parse.logprob({', '.join(map(repr, tokens))}): each token must be given once.")
    numbers = _numbers(tokens) if _expected(expected) else ()
    return Parse("logprob", _text("logprob", "token", token), words=numbers, others=rivals, top=_count(top))


def _parse(
    kind: Kind,
    value: str = "",
    *,
    words: tuple[tuple[str, float], ...] = (),
    which: object = None,
    range: object = None,
    reasoning: object = "strip",
) -> Parse:
    """A parser of these options, checked."""
    if which not in (None, "first", "last"):
        raise RegistrationError(f"parse.{kind}(which={which!r}): expected None, 'first' or 'last'.")
    if reasoning not in ("strip", "keep"):
        raise RegistrationError(f"parse.{kind}(reasoning={reasoning!r}): expected 'strip' or 'keep'.")
    return Parse(kind, value, words, which=which, range=_range(kind, range), reasoning=reasoning)


def _range(kind: str, value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    ends = [as_number(end) for end in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
    if len(ends) != 2 or not all(abs(end) <= FLOAT32_MAX for end in ends) or not all(a < b for a, b in pairwise(ends)):
        raise RegistrationError(f"parse.{kind}(range={value!r}): expected the lowest and the highest score, (0, 10).")
    return ends[0], ends[1]


def _text(function: str, argument: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RegistrationError(f"parse.{function}({argument}={value!r}): expected a non-empty string.")
    return value


def _numbers(tokens: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """The number that each token is."""
    try:
        numbers = [float(token) for token in tokens]
    except ValueError:
        numbers = []
    if len(numbers) < 2 or not all(abs(number) <= FLOAT32_MAX for number in numbers):
        shown = ", ".join(map(repr, tokens))
        raise RegistrationError(f"parse.logprob({shown}, expected=True): expected several tokens that are numbers.")
    longer = next((b for a in tokens for b in tokens if a != b and b.startswith(a)), None)
    if longer is not None:
        raise RegistrationError(
            f"parse.logprob(…, {longer!r}, expected=True): many models write {longer!r} as several tokens, of which the first "
            "is another number here. Ask for a scale of single digits."
        )
    return tuple(zip(tokens, numbers, strict=True))


def _expected(value: object) -> bool:
    if not isinstance(value, bool):
        raise RegistrationError(f"parse.logprob(expected={value!r}): expected True or False.")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise RegistrationError(f"parse.logprob(top={value!r}): expected 1 to 100 tokens.")
    return value


def _labels(function: str, argument: str, labels: object) -> tuple[tuple[str, float], ...]:
    wrong = f"parse.{function}({argument}={labels!r}): expected "
    if not isinstance(labels, Mapping) or not labels:
        raise RegistrationError(wrong + "a dict of strings and their scores.")
    for label, score in labels.items():
        if not isinstance(label, str) or isinstance(score, bool) or not isinstance(score, Real):
            raise RegistrationError(wrong + "strings and their scores.")
        if not label.strip():
            raise RegistrationError(wrong + "strings that are not empty.")
        if not abs(as_number(score)) <= FLOAT32_MAX:
            raise RegistrationError(wrong + "scores that float32 can hold.")
    if len({label.lower() for label in labels}) < len(labels):
        raise RegistrationError(wrong + "each word once: case is ignored.")
    return tuple((label, float(score)) for label, score in labels.items())
