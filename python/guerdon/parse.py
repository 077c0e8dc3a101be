"""How a score is read out of a judge's answer: the ``parse=`` of `guerdon.judge`.

An answer without the score that was asked for is an `error` that shows the answer; it is tried
again while the judge has ``retries`` left. So is one that ``max_tokens`` truncated at its score: 1
may be the beginning of 10.

>>> from guerdon import parse
>>> parse.tag("score")
Parse(kind='tag', value='score')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Literal

from guerdon._units import FLOAT32_MAX
from guerdon._units import number as as_number
from guerdon.errors import RegistrationError

__all__ = ["Parse", "json", "logprob", "number", "regex", "tag", "yes_no"]

Kind = Literal["number", "tag", "regex", "json", "yes_no", "logprob"]


@dataclass(frozen=True)
class Parse:
    """A way to read a score; made by the functions of this module."""

    kind: Kind
    value: str = ""
    words: tuple[tuple[str, float], ...] = ()
    others: tuple[str, ...] = ()
    top: int = 0

    def __repr__(self) -> str:
        given = {"value": self.value, "words": dict(self.words), "others": self.others}
        shown = "".join(f", {name}={value!r}" for name, value in given.items() if value)
        return f"Parse(kind={self.kind!r}{shown})"


def number() -> Parse:
    """The first number that stands by itself: 7 in ``"7/10"``, 8 in ``"GPT4 says 8"``; nothing of
    ``"3,5"``. The default.

    Examples:
        >>> number()
        Parse(kind='number')
    """
    return Parse("number")


def tag(name: str) -> Parse:
    """The first number within the last ``<name>…</name>`` of the answer.

    Raises:
        RegistrationError: `name` is empty.

    Examples:
        >>> tag("score")
        Parse(kind='tag', value='score')
    """
    return Parse("tag", _text("tag", "name", name))


def regex(pattern: str, words: Mapping[str, float] | None = None) -> Parse:
    """The first group (without groups: the whole) of the first match of a pattern.

    Args:
        pattern: In the syntax of Rust's ``regex``, which is Python's without look-around and
            backreferences.
        words: Scores by match, ignoring case; without it the match must be a number.

    Raises:
        RegistrationError: `words` has values other than numbers. `guerdon.judge` refuses an invalid
            pattern.

    Examples:
        >>> regex(r"Verdict: (good|bad)", {"good": 1.0, "bad": 0.0})
        Parse(kind='regex', value='Verdict: (good|bad)', words={'good': 1.0, 'bad': 0.0})
    """
    pairs = _words(words)
    return Parse("regex", _text("regex", "pattern", pattern), words=pairs)


def json(field: str) -> Parse:
    """A field of the JSON that the answer is, or of the first object that it holds (in a code
    block, after some words).

    Args:
        field: With dots for fields of fields, ``"verdict.score"``. Its value is a number, a
            boolean, a text that is a number, or null, which abstains.

    Examples:
        >>> json("score")
        Parse(kind='json', value='score')
    """
    return Parse("json", _text("json", "field", field))


def yes_no() -> Parse:
    """1.0 if the first of the words "yes" and "no" in the answer is "yes", 0.0 if it is "no".

    Examples:
        >>> yes_no()
        Parse(kind='yes_no')
    """
    return Parse("yes_no")


def logprob(token: str, *others: str, top: int = 20) -> Parse:
    """The probability of `token` as the first one of the answer: a soft score from 0 to 1.

    Args:
        token: Surrounding spaces are ignored; tokens that differ only in them are added up.
        others: Its rivals. With them the score is the token's share: ``logprob("Yes", "No")`` is
            P(Yes) ÷ (P(Yes) + P(No)).
        top: How many of the most likely tokens the server is asked for.

    The judge is asked for one token, unless ``max_tokens`` says otherwise.

    A server lists only the most likely tokens. One that it doesn't list counts as 0 where that
    can't be far off: its probability is at most
    ``u = min(1 - sum(listed), least of the listed but one)`` (servers add the token that was chosen
    to the most likely ones, so the very least says nothing). With P(No) listed and P(Yes) not, the
    score is between 0 and u ÷ (u + P(No)); with P(Yes) alone, between P(Yes) ÷ (P(Yes) + u) and 1.
    A score that may be off by more than 0.01 is an `error` that gives the bounds; so is one where
    neither is listed. A larger `top` helps, if the server supports it.

    Examples:
        >>> logprob("Yes", "No")
        Parse(kind='logprob', value='Yes', others=('No',))
    """
    rivals = tuple(_text("logprob", "others", other) for other in others)
    tokens = [_text("logprob", "token", token).strip(), *(rival.strip() for rival in rivals)]
    if len(set(tokens)) < len(tokens):
        raise RegistrationError(f"parse.logprob({', '.join(map(repr, tokens))}): each token must be given once.")
    return Parse("logprob", _text("logprob", "token", token), others=rivals, top=_count(top))


def _text(function: str, argument: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RegistrationError(f"parse.{function}({argument}={value!r}): expected a non-empty string.")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise RegistrationError(f"parse.logprob(top={value!r}): expected 1 to 100 tokens.")
    return value


def _words(words: object) -> tuple[tuple[str, float], ...]:
    if words is None:
        return ()
    wrong = f"parse.regex(words={words!r}): expected "
    if not isinstance(words, Mapping) or not words:
        raise RegistrationError(wrong + "a dict of strings and their scores.")
    for word, score in words.items():
        if not isinstance(word, str) or isinstance(score, bool) or not isinstance(score, Real):
            raise RegistrationError(wrong + "strings and their scores.")
        if not abs(as_number(score)) <= FLOAT32_MAX:
            raise RegistrationError(wrong + "scores that float32 can hold.")
    if len({word.lower() for word in words}) < len(words):
        raise RegistrationError(wrong + "each word once: case is ignored.")
    return tuple((word, float(score)) for word, score in words.items())
