"""Texts in which Python's and other languages' ideas of space, words and case differ."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

_WORDS = (
    "the a an The cat dog, sat on mat. it's U.S. 1,000 3.14 -5 foo-bar don't Über Straße naïve İstanbul ΟΔΟΣ K½ 字 ٣ & "
    "&quot; <skipped> hello! ?? ( ) [x] ... \x1c \x1f \u3000 \xa0 \n \t -\n \u200b e\u0301 a\u0300 ⓐ ſ ı <answer> </answer>"
)
PIECES = _WORDS.split(" ")
# Two texts whose edit distance takes minutes.
SLOW = "ab" * 2_000_000, "ba" * 2_000_000 + "c"

# Letters that only a newer Unicode than this Python's has are other letters elsewhere.
_known = st.characters(exclude_categories=("Cs", "Cn")).filter(lambda one: unicodedata.category(one) != "Cn")

texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.text(_known, max_size=60),
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and references, of which one may be much like it."""
    text = draw(texts)
    references = draw(st.lists(texts, min_size=1, max_size=3))
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(text)))
        references[0] = text[:cut] + draw(st.sampled_from(PIECES)) + text[cut:]
    return text, references
