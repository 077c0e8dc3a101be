r"""Pairs of gold and answer texts in the forms that models and datasets write, and with odd pieces
put into them: units, sets, matrices, mixed numbers, money, separators of other countries, `\pm`.

The same seed gives the same pairs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.rewards.math_pairs import ANSWERS, GOLD_TEXTS, GOLDS

__all__ = ["forms"]

Rng = random.Random

# Fields: n and m digits, i an integer, a and b parts of a fraction, l a letter, w a word.
_NUMBERS = r"""{i}|{i:,}|{i:.0f}.|{i}.0|{i}.00|{d}|{d:.2f}|{d:,.2f}|{d:.6f}|{d:.7f}|.{n}|-.{n}|00{i}|-0{n}|+{i}|- {i}|--{i}
\pm {i}|{i}\%|{i}%|{i} \%|{i} %|{i:,}\%|{d}%|{d}\%|{i}e{n}|{i} \times 10^{{{n}}}|{i}\cdot 10^{n}|({i})|{{{i}}}|{i}{{}}|{i}!|\mathbf{{{i}}}
{n} 234|{n}.234,5|{n}'234|{n}\,234|{n}{{,}}234|{n}\!234|{n}_234|{n},5|\$ {i}|\${d:.2f}|€{n}|{n}€|{i:,}.{n}|{n}.{n}.{m}"""
_FRACTIONS = r"""\frac{{{a}}}{{{b}}}|\dfrac{{{a}}}{{{b}}}|\tfrac{{{a}}}{{{b}}}|\cfrac{{{a}}}{{{b}}}|\frac{n}{m}|\frac{{{a}}}{m}|\frac {n} {m}
\frac {{{a}}} {{{b}}}|{a}/{b}|{a} / {b}|0{n}/0{m}|{n} \frac{{{m}}}{{{b}}}|{n}\frac{{{m}}}{{{b}}}|{n} {m}/{b}|-\frac{{{n}}}{{{b}}}
\frac{{-{n}}}{{-{b}}}|\left(\frac{{{a}}}{{{b}}}\right)|{{{a} \over {b}}}|\frac{{{a}.5}}{{{b}}}|\frac{{{a},000}}{{{b}}}|½|{a}\div {b}|{a}:{b}
\frac{{{a}}}{{{b}}}\%|\frac{{+{n}}}{{{b}}}|\$\frac{{{a}}}{{{b}}}|\frac{{{a}}}{{{b}}}."""
_UNITS = r"""^\circ|^{{\circ}}|^\circ C|^\circ\text{{C}}|°|\text{{ cm}}|\text{{cm}}^2|\text{{ cm}}^{{2}}|\ \text{{cm}}|\,\text{{cm}}|\mathrm{{ kg}}
\mathrm{{th}}| cm| meters|\text{{ hours}}|\text{{ hours and minutes}}|\text{{ or }}|\text{{th}}|\text{{ i}}|\text{{ pi}}|\text{{ percent}}
\text{{percentage}}|\text{{ Percent}}| percent|\text{{ %}}|\text{{ dollars}}|\mbox{{ ft}}|\textbf{{ cm}}|\text{{ and 5}}|\text{{ C}}|\text{{}}
\quad|\ |\,|\text{{ square units}}|\text{{ infinity}}|\text{{ log}}|\text{{ x}}|\text{{ frac}}|d|m|x| dollars"""
_WORDS = r"""{w}|\text{{{w}}}|\text{{ {w} }}|\textbf{{{w}}}|\textrm{{{w}}}|\mathrm{{{w}}}|\mathbf{{{w}}}|\mbox{{{w}}}|({w})|\text{{({w})}}
\textbf{{({w})}}|(\text{{{w}}})|\operatorname{{{w}}}|\text {{{w}}}|\text{{{w}}}.|{{{w}}}|[{w}]|\{{{w}\}}|{w}.|{w} {w}|{w}-{n}"""
_OTHERS = r"""({i}, {m})|[{n}, {m}]|({n},{m}]|\{{{n}, {m}\}}|{n}, {m}|{n} \text{{ and }} {m}|{n} or {m}|\left({n},\infty\right)|(-\infty, {n}]
\begin{{pmatrix}} {n} \\ {m} \end{{pmatrix}}|\begin{{bmatrix}} {n} & {m} \\ 0 & 1 \end{{bmatrix}}|{n} \pm {m}|{n} \pm \sqrt{{{m}}}|{l} = {i}
{l}={d}|{l} = {n}, y = {m}|{l}^2={n}|{l}_{n} = {m}|{l} \in [{n},{m}]|{l} > {n}|{n} < {l} < {m}|{l} \le {n}|{l} \neq {n}|\approx {i}
\sqrt{{{n}}}|\sqrt{n}|\sqrt[3]{{{n}}}|{n}\sqrt{{{m}}}|{n}\pi|\frac{{{n}\pi}}{{{m}}}|{n}{l}|{n}{l}^2 - {m}{l} + {n}|({l}+{n})({l}-{m})|e^{{{n}}}
\ln {n}|\log_{n} {m}|\log_2({n})|\sin({n})|\binom{{{n}}}{{{m}}}|{n}!|{n}^{{{m}}}|{n}^{m}|2^{{10}}|\lfloor {d} \rfloor|0.\overline{{{n}}}
{n}1_{{8}}|\infty|\emptyset|\mathbb{{R}}|{n}:{m}|i|{n}+{m}i|{n} + {m}|{n} \cdot {m}|{n}*{m}|{i}={m}|{l}={n}={m}|f({l}) = {n}{l}|{n}''
\ldots|1, 2, \ldots, {n}|\text{{{n}}}|\text{{{n} apples}}|\${d}|\text{{\${n}}}|\boxed{{{n}}}|\displaystyle {n}|\left|{n}\right||{l}^{{-{n}}}
\alpha|\theta = {n}|{l} {n}|{l}{n}|{l})|({l}) {n}|\text{{Option {l}}}|{n}{{:}}30"""
_KINDS = {"number": _NUMBERS, "fraction": _FRACTIONS, "word": _WORDS, "other": _OTHERS}
_TEMPLATES = {
    kind: [one for line in table.split("\n") for one in line.split("|") if one] for kind, table in _KINDS.items()
}
_UNIT_TEMPLATES = [one for line in _UNITS.split("\n") for one in line.split("|")]
_NAMES = "Yes no True even DNE all A B AB pi e i sin th max deg mod inf or and percent cm o T d sqrt text frac"

# Signs of LaTeX and of patterns, words that are rewritten, digits of other scripts.
_SIGNS = r"""{ } \ $ $$ \$ % \% , . ; : - + = ( ) [ ] \[ \] \( \) ^ _ ~ & # ' " ! ? * ** / < > \, \! \; \ \quad \\ \text{ \boxed{ \boxed{5}
\fbox{5} \mathrm{ \left \right \displaystyle \pi i e x 0 5 12 1,000 .5 5. -0 007 0,5 +0 and or inf percent pct Percent answer Answer: != ==
\ne \approx \ldots \cdot \frac \frac{1}{2} \sqrt sqrt(2) \infty {,} ^\circ \circ e5 th \mathrm{T} {\rm d} cm m \text{cm} \text{} \%$ $%
}% \log_2 \in \cup \{ \} \| × ÷ € ½ ² − ٣ ５ ſ K"""
_BLANKS = [
    " ",
    "  ",
    "\n",
    "\t",
    "\r",
    "\x1c",
    "\x85",
    "\xa0",
    "\u2009",
    "\u202f",
    "\u2028",
    "I hope",
    "final answer is",
    " and ",
    " or ",
]
_PIECES = [*_SIGNS.split(), *_BLANKS]
_GOLDS = [
    *GOLDS,
    *GOLD_TEXTS,
    "\\({}\\)",
    "$ {} $",
    "${}$.",
    " {} ",
    "**{}**",
    "= {}",
    "{} dollars",
    "{}%",
    "{} percent",
    "# {}",
    "{}\n",
]
_ANSWERS = [
    *ANSWERS,
    "$$\\boxed{{{}}}$$",
    "\\[ x = \\boxed{{{}}} \\]",
    "**\\boxed{{{}}}**",
    "\\boxed{{{}}} more }} text",
    "\\boxed{{\\boxed{{{}}}}}",
    "$\\boxed{{{}}} \\text{{ cm}}$",
    "$\\boxed{{{}}}^\\circ$",
    "\\boxed{{{}}} = 5",
    "$5$ and $\\boxed{{{}}}$",
    "$\\boxed{{{}}}$ or $5$",
]


def _form(rng: Rng) -> tuple[str, str]:
    kind = rng.choice([*_TEMPLATES, "unit"])
    template = rng.choice(_TEMPLATES[rng.choice(["number", "fraction"]) if kind == "unit" else kind])
    template += rng.choice(_UNIT_TEMPLATES) if kind == "unit" else ""
    whole = rng.choice([rng.randint(-20, 20), rng.randint(0, 3000), rng.randint(-(10**6), 10**7)])
    part = {"a": rng.randint(-12, 30), "b": rng.choice([1, 2, 3, 4, 5, 8, 10, 100])}
    small = {"n": rng.randint(1, 9), "m": rng.randint(1, 9), "l": rng.choice("abnrtxyzAXiedCT")}
    return kind, template.format(i=whole, d=whole / 100, w=rng.choice(_NAMES.split()), **part, **small)


def _with_pieces(rng: Rng, text: str) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        place, how = rng.randint(0, len(text)), rng.random()
        end = place + rng.choice([1, 1, 2, 5])
        if how < 0.7:
            text = text[:place] + rng.choice(_PIECES) + text[place:]
        elif how < 0.85:
            text = text[:place] + text[end:]
        else:
            text = text[:end] + text[place:]
    return text


def forms(count: int, seed: int, question: str) -> Iterator[tuple[str, str, str]]:
    """Gives `count` triples: kind of gold answer, gold text, answer text; see `pairs`."""
    rng = random.Random(seed)
    answers = _ANSWERS if question == "reward" else [*_GOLDS, "\\boxed{{{}}}"]
    for _ in range(count):
        kind, inside = _form(rng)
        how = rng.random()
        other = inside if how < 0.5 else _with_pieces(rng, inside) if how < 0.75 else _form(rng)[1]
        around = rng.choice(answers)
        gold, answer = rng.choice(_GOLDS).format(inside), around.format(*[other] * around.count("{}"))
        how = rng.random()
        gold = _with_pieces(rng, gold) if 0.3 < how < 0.5 else gold
        answer = _with_pieces(rng, answer) if how < 0.4 else answer
        yield kind, gold, answer
