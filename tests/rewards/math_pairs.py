"""Pairs of gold and answer texts for the math decider, by kind of answer.

- The same seed gives the same pairs.
- About half of the pairs are equal or nearly so; others are what a decider could get wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

__all__ = ["KINDS", "pairs", "soup"]

Rng = random.Random
WORDS = ["Yes", "No", "True", "False", "even", "Odd", "red", "Tuesday", "circle", "info", "north", "percent", "or"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _integer(rng: Rng) -> str:
    value = rng.choice(
        [rng.randint(-20, 20), rng.randint(0, 3000), rng.randint(-(10**9), 10**9), rng.randint(0, 10**22)]
    )
    return rng.choice([str(value), f"{value:,}", f"{value:,}", f"0{value}", f"+{value}"][: rng.choice([2, 2, 5])])


def _decimal(rng: Rng) -> str:
    value = rng.randint(-(10**6), 10**7) / 10 ** rng.randint(0, 7)
    return rng.choice(
        [f"{value}", f"{value:.2f}", f"{value:,.3f}", f"{value:.6f}", f".{abs(int(value))}", f"{value:.0f}."]
    )


def _nearly(rng: Rng, text: str) -> str:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return text
    near = [f"{value}", f"{value:.1f}", f"{value:.6f}", f"{value + 1e-6:.7f}", f"{value + 3e-6:.7f}", f"{value / 100}"]
    return rng.choice([*near, f"{value * 100:.0f}\\%", f"{value:.0f}\\%", f"{value:,.0f}"])


def _fraction(rng: Rng) -> str:
    above, below = rng.randint(-30, 30), rng.choice([1, 2, 3, 4, 5, 8, 10, 25, 100, 0, -2])
    command = rng.choice(["\\frac", "\\frac", "\\dfrac", "\\tfrac", "-\\frac", "\\cfrac"])
    spelled = [f"{command}{{{above}}}{{{below}}}", f"{above}/{below}", f"\\frac{abs(above)}{abs(below)}"]
    return rng.choice([*spelled, spelled[0], f"{above / (below or 1)}", f"{rng.randint(1, 4)}\\frac{{1}}{{2}}"])


def _percent(rng: Rng) -> str:
    value = rng.choice([str(rng.randint(0, 300)), f"{rng.randint(0, 3000) / 10}"])
    return value + rng.choice(["%", "\\%", " \\%", " %", "", " percent", "\\text{ percent}", "\\text{percent}"])


def _unit(rng: Rng) -> str:
    units = [
        "^\\circ",
        "^{\\circ}",
        "\\text{ cm}",
        " \\text{ dollars}",
        "\\text{ cm}^2",
        " m",
        " dollars",
        "\\mbox{ ft}",
    ]
    return _integer(rng) + rng.choice([*units, "\\text{ apples and pears}", " \\text{or}", "\\text{th}", "\\text{i}"])


def _money(rng: Rng) -> str:
    return rng.choice(["\\$", "\\$", "$", "\\$ "]) + rng.choice([_integer, _decimal])(rng)


def _letter(rng: Rng) -> str:
    form = rng.choice(
        ["{}", "\\text{{{}}}", "({})", "\\text{{({})}}", "\\textbf{{({})}}", "\\mathrm{{{}}}", "\\textbf{{{}}}"]
    )
    return form.format(rng.choice([rng.choice("ABCDE"), rng.choice(LETTERS)]))


def _word(rng: Rng) -> str:
    return rng.choice(["\\text{{{}}}", "\\text{{{}}}", "{}", "\\mathrm{{{}}}"]).format(rng.choice(WORDS))


def _assignment(rng: Rng) -> str:
    name = rng.choice(["x", "x", "y", "n", "X", "e", "i", rng.choice(LETTERS)])
    return f"{name}{rng.choice(['=', ' = '])}{rng.choice([_integer, _decimal, _fraction])(rng)}"


def _expression(rng: Rng) -> str:
    number, letter = rng.randint(2, 9), rng.choice("xyabt")
    forms = [
        f"{number}\\sqrt{{{rng.randint(2, 9)}}}",
        f"{number}{letter}+{rng.randint(1, 9)}",
        f"{letter}^{number}",
        f"\\frac{{{number}\\pi}}{{{rng.randint(1, 9)}}}",
        f"({number}, {rng.randint(1, 9)})",
        f"[{number},{rng.randint(10, 19)})",
        f"{number}, {rng.randint(1, 9)}",
        f"{number} < {letter} < {number + 4}",
        f"\\sqrt{rng.randint(2, 9)}",
        f"{number}^({letter})",
        f"10^{{{number}}}",
        f"\\left({number},\\infty\\right)",
        f"{number}\\pi",
        f"{number} + {rng.randint(1, 9)}",
        f"\\frac{{\\sqrt{{{number}}}}}{{2}}",
        f"\\frac{{1}}{{2}}{number}",
        f"|{letter}-{number}|",
        f"{letter}_{number}",
        f"{letter} = {number}{letter} + 1",
    ]
    return rng.choice(forms)


KINDS: dict[str, Callable[[Rng], str]] = {
    "integer": _integer,
    "decimal": _decimal,
    "fraction": _fraction,
    "percent": _percent,
    "unit": _unit,
    "money": _money,
    "letter": _letter,
    "word": _word,
    "assignment": _assignment,
    "expression": _expression,
}

GOLDS = [
    "{}",
    "{}",
    "${}$",
    "${}$",
    "${}$",
    "\\boxed{{{}}}",
    "So it is $\\boxed{{{}}}$.",
    "#### {}",
    "\\[{}\\]",
    "$${}$$",
]
GOLD_TEXTS = [
    "He has 3 + 4 = $<<3+4=7>>7.\n#### {}",
    "A: {}",
    "x = {}",
    "it costs ${}",
    "It is {}.",
    "the answer is {}",
    "{} left",
]
ANSWERS = [
    "\\boxed{{{}}}",
    "\\boxed{{{}}}",
    "Thus $\\boxed{{{}}}$.",
    "We have 3 < 5, so\n\\[\n\\boxed{{{}}}\n\\]",
    "$x + \\boxed{{{}}}$",
    "The final answer is \\boxed{{{}}}.",
    "\\( \\boxed{{{}}} \\) dollars",
    "[ \\boxed{{{}}} ] is it",
    "\\boxed{{{}}}, and I am sure that it is \\boxed{{{}}}.",
    "$\\boxed{{{}}}$, as was shown above, and $\\boxed{{{}}}$",
    "$\\boxed{{{}}}$ and $\\boxed{{{}}}$",
    "First \\boxed{{1}}. Then, after a good deal of thinking about it: \\boxed{{{}}}",
    "$\\boxed{{{}}}$%",
    "\\boxed{{{}}} percent of $4",
    "Answer: ${}$",
    "The final answer is ${}$. I hope it is correct.",
    "It costs $5 and then \\boxed{{{}}} and $7 more",
    "\\boxed{{{}",
    "no box, just {}",
    "The answer is {}",
    "\\boxed{{ {} }}}}",
    "\\fbox{{{}}}",
]


def pairs(count: int, seed: int, question: str) -> Iterator[tuple[str, str, str]]:
    """Gives `count` triples: kind of answer, gold text, answer text.

    Args:
        question: ``"reward"``: answers as models write them. ``"equal"``: answers like gold ones.
    """
    rng = random.Random(seed)
    kinds = list(KINDS)
    for _ in range(count):
        kind = rng.choice(kinds)
        gold = KINDS[kind](rng)
        other = rng.random()
        if other < 0.35:
            answer = gold
        elif other < 0.6:
            answer = _nearly(rng, gold)
        elif other < 0.9:
            answer = KINDS[kind](rng)
        else:
            answer = KINDS[rng.choice(kinds)](rng)
        in_text = GOLDS if rng.random() < 0.8 else GOLD_TEXTS
        answers = ANSWERS if question == "reward" else [*GOLDS, *GOLD_TEXTS]
        around = rng.choice(answers)
        yield kind, rng.choice(in_text).format(gold), around.format(*[answer] * around.count("{}"))


# What math-verify's patterns are made of, and what looks like it.
_LATEX = r"$ $ $$ \[ \] \( \) [ ] { } \boxed{ \boxed{5} \boxed{5} \boxed{\frac{1}{2}} \boxed{x=5} \boxed{A} \boxed{5\%}"
_PARTS = r"\fbox{5} \text{ \frac 5 5 12 0 1,234 0.5 \frac{1}{2} \sqrt{2} x A % \% \$ percent pct answer Answer: th"
_SIGNS = "= - + . , : ** * / ( ) × é \u0663 \\ ^ _ ! < > '"
_WORDS = [" ", " ", " ", "\n", "\t", "\u00a0", " and ", " or ", "final answer is", "I hope", "it is"]
PIECES = [*_LATEX.split(), *_PARTS.split(), *_SIGNS.split(), *_WORDS]
SOUP_GOLDS = ["5", "$5$", "1/2", "$A$", "$x=5$", "5%", "12", "0.5", "$\\frac{1}{2}$", "-5"]


def soup(count: int, seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Yields `count` rows: question, kind of soup, gold text, answer text. One or both texts are
    pieces that patterns look for, in any order."""
    rng = random.Random(seed)

    def some(least: int, most: int) -> str:
        return "".join(rng.choice(PIECES) for _ in range(rng.randint(least, most)))

    for _ in range(count):
        end = rng.choice(["\\boxed{5}", "$\\boxed{5}$", "\\boxed{A}", "5", "1,234"])
        kind = rng.choice(["answer", "answer", "gold", "plain gold", "around", "same"])
        gold, latex = rng.choice(SOUP_GOLDS), some(1, 5)
        made = {
            "answer": ("reward", gold, some(1, 9)),
            "gold": ("reward", some(1, 9), "\\boxed{5}"),
            "plain gold": ("equal", some(1, 9), gold),
            "around": (rng.choice(["reward", "equal"]), gold, some(0, 5) + end + some(0, 5)),
            "same": ("reward", f"${latex}$", f"\\boxed{{{latex}}}"),
        }[kind]
        yield made[0], kind, made[1], made[2]
