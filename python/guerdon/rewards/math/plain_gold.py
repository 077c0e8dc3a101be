"""Gold answers that are not mathematics: a letter, a word or some, compared as such.

math-verify reads none in them, so that a column of them would give no reward at all.
"""

from __future__ import annotations

import logging
import re
from typing import Final

__all__ = ["boxed", "plain_score", "same_words", "unsigned", "warn_unread"]

_WRAPPED: Final = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|boxed|mbox)\s*\{([^{}]*)\}")
_WORDS: Final = re.compile(r"[^\W\d_][\w'’-]*(?: [\w'’-]+){0,4}")
# Letters as in "(C) Paris", "C. Paris"; and as in "Option C".
_MARKED: Final = re.compile(r"\(?([A-Za-z])[).:](?:\s|$)")
_CHOICE: Final = re.compile(r"(?:option |choice )?\(?([A-Za-z])(?:[).:](?:[\s\\~]|$)|$)", re.IGNORECASE)
# Two letters: "(A) or (B)".
_TWO: Final = re.compile(r"\(?[A-Z][).:]?\s*(?:or\b|and\b|[,/&])\s*\(?[A-HJ-Z]\b")
# A letter behind others: "5 or (B)".
_SEVERAL: Final = re.compile(r"(?:\bor\b|\band\b|[,/&])\s*(?:\([A-Z]\)|[A-Z][.:])(?:\s|$)")
# Another choice with its text: "… or (B) 6"; an initial has no number behind it.
_HEDGED: Final = re.compile(r"(?:\bor\b|\band\b|[,/&])\s*(?:\([A-Z]\)\s+\S|[A-Z][.:]\s+[-\d\\$])")
_PLUS: Final = re.compile(r"\$?\s*\+\s*(?=[\d.\\])")
# Slices of more nested ones would take long.
_MOST_BOXES: Final = 100
_LONGEST: Final = 200
_warned: set[str] = set()


def unsigned(gold: str) -> str:
    """The gold answer without a plus sign before its number, behind which nothing is read."""
    match = _PLUS.match(gold.lstrip())
    if match is None:
        return gold
    rest = gold.lstrip()[match.end() :]
    return f"${rest}" if "$" in match[0] else rest


def boxed(text: str) -> list[str]:
    r"""Returns the contents of a text's last boxes, in order: ``\boxed{…}``, ``\fbox{…}`` and
    ``\boxed 2``."""
    found: list[str] = []
    boxes = list(re.finditer(r"\\(?:boxed|fbox)\s*", text))[-_MOST_BOXES:]
    ends, opened = dict[int, int](), list[int]()
    for brace in re.finditer("[{}]", text[boxes[0].end() :]) if boxes else ():
        place = brace.start() + boxes[0].end()
        if brace[0] == "{":
            opened.append(place)
        elif opened:
            ends[opened.pop()] = place
    for match in boxes:
        at = match.end()
        if not text.startswith("{", at):
            bare = re.compile(r"[\w.,/-]+").match(text, at)
            found += [bare[0].rstrip(".,")] if bare else []
            continue
        if at not in ends:
            break  # it is cut off, and so is the rest
        found.append(text[at + 1 : ends[at]])
    return found


def _unwrapped(text: str) -> str:
    """The text without the commands of LaTeX around its words."""
    while (inner := _WRAPPED.sub(r"\1", text)) != text:
        text = inner
    return text.strip()


def _words(text: str) -> str | None:
    """A letter or words in one form; None where a text is something else."""
    if len(text) > _LONGEST:
        return None
    text = _unwrapped(text)
    text = " ".join(text.replace("$", " ").split()).rstrip(".").strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    return text if _WORDS.fullmatch(text) else None


def _several_letters(text: str) -> bool:
    """Returns whether a text may name more than one choice."""
    return bool(_TWO.match(text) or _SEVERAL.search(text))


def _choice(answer: str) -> str | None:
    """The letter that an answer begins with; None where it names another one too."""
    if found := _MARKED.match(answer):
        return None if _TWO.match(_unwrapped(answer)) or _HEDGED.search(answer) else found[1]
    answer = _unwrapped(answer)
    found = _CHOICE.match(answer)
    return found[1] if found and not _several_letters(answer) else None


def same_words(gold: str, answer: str, *, strict: bool = False) -> bool | None:
    """Returns whether an answer is a gold answer of words; None where that is something else.

    Args:
        strict: The case of a letter counts.
    """
    wanted = _words(gold)
    if wanted is None:
        return None
    choice = _choice(answer[:_LONGEST].strip()) if len(wanted) == 1 else None
    given = choice or _words(answer)
    return given is not None and (
        wanted == given or (wanted.casefold() == given.casefold() and (len(wanted) > 1 or not strict))
    )


def plain_score(gold: str, completion: str, *, strict: bool = False) -> float | None:
    """The reward of a completion by its last box; None where the gold answer is not words."""
    same = same_words(gold, (boxed(completion) or [""])[-1], strict=strict)
    return None if same is None else float(same)


def warn_unread(column: str, gold: str) -> None:
    """Warns once per column that a gold answer in it can't be read."""
    if gold.strip() and column not in _warned:
        _warned.add(column)
        logging.getLogger("guerdon").warning(
            "math_reward: no answer can be read in %.80r of column %r: samples with such gold answers have no reward. "
            "Give the answer alone, or in \\boxed{}",
            gold,
            column,
        )
