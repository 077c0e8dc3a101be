r"""Pairs of gold and answer texts for the math decider, in the forms that models and datasets
write, some with odd pieces put into them.

- The same seed gives the same pairs.
- About half of the pairs are equal or nearly so; others are what a decider could get wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from string import ascii_letters

__all__ = ["KINDS", "pairs", "soup"]

Rng = random.Random

# Usual forms on the first line, others below. Fields: n and m are digits, i an integer, d a
# part of it, o nearly d, a and b parts of a fraction, q is nearly that, l a letter, w a word.
_NUMBERS = r"""{i}|{i:,}|{d}|{d:.2f}|{i}\%|{i}%|\${d:.2f}|{q:.6f}|{i}.0
{n},{m}{n}|{n},{i}|{i:.0f}.|{i}.0|{i}.00|{d}|{d:.2f}|{d:,.2f}|{d:.6f}|{d:.7f}|.{n}|-.{n}|00{i}|-0{n}|+{i}|- {i}|--{i}
\pm {i}|{i}\%|{i}%|{i} \%|{i} %|{i:,}\%|{d}%|{d}\%|{i}e{n}|{i} \times 10^{{{n}}}|{i}\cdot 10^{n}|({i})|{{{i}}}|{i}{{}}|{i}!|\mathbf{{{i}}}
{n} 234|{n}.234,5|{n}'234|{n}\,234|{n}{{,}}234|{n}\!234|{n}_234|{n},5|\$ {i}|\${d:.2f}|€{n}|{n}€|{i:,}.{n}|{n}.{n}.{m}
{q}|{q:.1f}|{q:.6f}|{q:.7f}|{i:,}|0{i}|{d}%|{d} percent|{i}\text{{ percent}}|\$ {d:.2f}
{o:.7f}|{d:.1f}|{d:,.0f}|{d:,.3f}|{d:.0f}\%|.{n}{m}0|${i}|${d}|$ {i}|{d}\text{{percent}}|{d} \%"""
_FRACTIONS = r"""\frac{{{a}}}{{{b}}}|{a}/{b}|{q}|{a}/{b} {w}|{w} {a}/{b}|\dfrac{{{a}}}{{{b}}}|\tfrac{{{a}}}{{{b}}}|\cfrac{{{a}}}{{{b}}}|\frac{n}{m}
\frac{{{a}}}{m}|\frac {n} {m}
\frac {{{a}}} {{{b}}}|{a}/{b}|{a} / {b}|0{n}/0{m}|{n} \frac{{{m}}}{{{b}}}|{n}\frac{{{m}}}{{{b}}}|{n} {m}/{b}|-\frac{{{n}}}{{{b}}}
\frac{{-{n}}}{{-{b}}}|\left(\frac{{{a}}}{{{b}}}\right)|{{{a} \over {b}}}|\frac{{{a}.5}}{{{b}}}|\frac{{{a},000}}{{{b}}}|½|{a}\div {b}|{a}:{b}
\frac{{{a}}}{{{b}}}\%|\frac{{+{n}}}{{{b}}}|\$\frac{{{a}}}{{{b}}}|\frac{{{a}}}{{{b}}}.
-\frac{{{a}}}{{{b}}}|\frac{n}{b}|\frac{m}{b}{n}"""
_UNITS = r"""^\circ|^{{\circ}}|^\circ C|^\circ\text{{C}}|°|\text{{ cm}}|\text{{cm}}^2|\text{{ cm}}^{{2}}|\ \text{{cm}}
\,\text{{cm}}|\mathrm{{ kg}}
\mathrm{{th}}| cm| meters|\text{{ hours}}|\text{{ hours and minutes}}|\text{{ or }}|\text{{th}}|\text{{ i}}|\text{{ pi}}|\text{{ percent}}
\text{{percentage}}|\text{{ Percent}}| percent|\text{{ %}}|\text{{ dollars}}|\mbox{{ ft}}|\textbf{{ cm}}|\text{{ and 5}}|\text{{ C}}|\text{{}}
\quad|\ |\,|\text{{ square units}}|\text{{ infinity}}|\text{{ log}}|\text{{ x}}|\text{{ frac}}|d|m|x| dollars
 \text{{ dollars}}| m| \text{{or}}|\text{{i}}|\text{{ apples and pears}}"""
_WORDS = r"""{w}|{l}|({l})|\text{{({l})}}|\text{{{w}}}|\text{{ {w} }}|\textbf{{{w}}}|\textrm{{{w}}}|\mathrm{{{w}}}
\mathbf{{{w}}}|\mbox{{{w}}}|({w})|\text{{({w})}}
\textbf{{({w})}}|(\text{{{w}}})|\operatorname{{{w}}}|\text {{{w}}}|\text{{{w}}}.|{{{w}}}|[{w}]|\{{{w}\}}|{w}.|{w} {w}|{w}-{n}"""
_OTHERS = r"""{l} = {i}|{l}={d}|{l} = \frac{{{a}}}{{{b}}}|{n}\sqrt{{{m}}}|{l}^{n} + {m}|({n}, {m})|{w} = {i}|{i} = {a}|\sqrt{n}\ |{i}={m}|or \frac{{1}}{{2}}{n}
({i}, {m})|[{n}, {m}]|({n},{m}]|\{{{n}, {m}\}}|{n}, {m}|{n} \text{{ and }} {m}|{n} or {m}|\left({n},\infty\right)|(-\infty, {n}]
\begin{{pmatrix}} {n} \\ {m} \end{{pmatrix}}|\begin{{bmatrix}} {n} & {m} \\ 0 & 1 \end{{bmatrix}}|{n} \pm {m}|{n} \pm \sqrt{{{m}}}|{l} = {i}
{l}={d}|{l} = {n}, y = {m}|{l}^2={n}|{l}_{n} = {m}|{l} \in [{n},{m}]|{l} > {n}|{n} < {l} < {m}|{l} \le {n}|{l} \neq {n}|\approx {i}
\sqrt{{{n}}}|\sqrt{n}|\sqrt[3]{{{n}}}|{n}\sqrt{{{m}}}|{n}\pi|\frac{{{n}\pi}}{{{m}}}|{n}{l}|{n}{l}^2 - {m}{l} + {n}|({l}+{n})({l}-{m})|e^{{{n}}}
\ln {n}|\log_{n} {m}|\log_2({n})|\sin({n})|\binom{{{n}}}{{{m}}}|{n}!|{n}^{{{m}}}|{n}^{m}|2^{{10}}|\lfloor {d} \rfloor|0.\overline{{{n}}}
{n}1_{{8}}|\infty|\emptyset|\mathbb{{R}}|{n}:{m}|i|{n}+{m}i|{n} + {m}|{n} \cdot {m}|{n}*{m}|{i}={m}|{l}={n}={m}|f({l}) = {n}{l}|{n}''
\ldots|1, 2, \ldots, {n}|\text{{{n}}}|\text{{{n} apples}}|\${d}|\text{{\${n}}}|\boxed{{{n}}}|\displaystyle {n}|\left|{n}\right||{l}^{{-{n}}}
\frac{{1}}{{2}}{n}|\frac{{\sqrt{{{n}}}}}{{2}}|\frac{{1}}{{{n}}}{m}\pi|{n}^({l})|10^{{{n}}}|{l} = {n}{l} + 1
{n}{l}+{m}|{l}^{n}|{l}_{n}|[{n},1{m})|¦{l}-{n}¦|{l}={i}|{l}={a}/{b}
\alpha|\theta = {n}|{l} {n}|{l}{n}|{l})|({l}) {n}|\text{{Option {l}}}|{n}{{:}}30"""
KINDS = {"number": _NUMBERS, "fraction": _FRACTIONS, "word": _WORDS, "other": _OTHERS, "unit": _UNITS}
_NAMES = (
    "Yes no True even DNE all A B C D x AB pi e i sin th max deg mod inf or and percent cm o T d sqrt text frac info "
    "No False Odd red Tuesday circle north"
)

# Around gold answers and answers, the usual ones first; ¶ is the end of a line. ¦ is a bar.
_GOLDS = r"""{}|{}|{}|${}$|${}$|${}$|${}$|$ {} $|\({}\)|\[{}\]|$${}$$|\boxed{{{}}}|So it is $\boxed{{{}}}$.|#### {}
${}$.| {} |**{}**
= {}|{} dollars|{}%|{} percent|# {}|{}¶|He has 3 + 4 = $<<3+4=7>>7.¶#### {}|A: {}|x = {}|it costs ${}|It is {}.|the answer is {}|{} left"""
_ANSWERS = r"""\boxed{{{}}}|\boxed{{{}}}|\boxed{{{}}}|Thus $\boxed{{{}}}$.|We have 3 < 5, so¶\[¶\boxed{{{}}}¶\]|$x + \boxed{{{}}}$
The final answer is \boxed{{{}}}.|\( \boxed{{{}}} \) dollars|[ \boxed{{{}}} ] is it|\boxed{{{}}}, and I am sure that it is \boxed{{{}}}.
$\boxed{{{}}}$, as was shown above, and $\boxed{{{}}}$|$\boxed{{{}}}$ and $\boxed{{{}}}$|$\boxed{{{}}}$%|\boxed{{{}}} percent of $4
First \boxed{{1}}. Then, after a good deal of thinking about it: \boxed{{{}}}|Answer: ${}$|The final answer is ${}$. I hope it is correct.
It costs $5 and then \boxed{{{}}} and $7 more|\boxed{{{}|no box, just {}|The answer is {}|\boxed{{ {} }}}}|\fbox{{{}}}|$$\boxed{{{}}}$$
\[ x = \boxed{{{}}} \]|**\boxed{{{}}}**|\boxed{{{}}} more }} text|\boxed{{\boxed{{{}}}}}|$\boxed{{{}}} \text{{ cm}}$|$\boxed{{{}}}^\circ$
\boxed{{{}}} = 5|$5$ and $\boxed{{{}}}$|$\boxed{{{}}}$ or $5$"""


def _items(table: str) -> list[str]:
    return [one.replace("¶", "\n").replace("¦", "|") for line in table.split("\n") for one in line.split("|") if one]


_TEMPLATES = {kind: _items(table) for kind, table in KINDS.items()}
_USUAL = {kind: _items(table.split("\n")[0]) for kind, table in KINDS.items()}
GOLDS, ANSWERS = _items(_GOLDS), _items(_ANSWERS)
# Signs of LaTeX and of patterns, words that are rewritten, digits of other scripts.
_SIGNS = r"""{ } \ $ $$ \$ % \% , . ; : - + = ( ) [ ] \[ \] \( \) ^ _ ~ & # ' " ! ? * ** / < > \, \! \; \ \quad \\ \text{ \boxed{ \boxed{5}
\boxed{\frac{1}{2}} \boxed{x=5} \boxed{A} \boxed{5\%} \fbox{ \fbox{5} \mathrm{ \left \right \displaystyle \pi i e x A 0 5 12 1,000 1,234 .5
5. 0.5 -0 007 0,5 +0 and or inf percent pct Percent answer Answer: th != == \ne \approx \ldots \cdot \frac \frac{1}{2} \sqrt \sqrt{2} sqrt(2)
\infty {,} ^\circ \circ e5 th \mathrm{T} {\rm d} cm m \text{cm} \text{} \%$ $% }% \log_2 \in \cup \{ \} \| × ÷ € ½ ² é − ٣ ５ ſ K"""
_BLANKS = " |  |\n|\t|\r|\x1c|\x85|\xa0|\u2009|\u202f|\u2028|I hope|final answer is|it is| and | or "
PIECES = [*_SIGNS.split(), *_BLANKS.split("|")]


def _fields(rng: Rng) -> dict[str, object]:
    whole = rng.randint(
        *rng.choice([(-20, 20), (-20, 20), (0, 3000), (0, 3000), (-(10**6), 10**7), (-(10**9), 10**9), (0, 10**22)])
    )
    above, below = rng.randint(-30, 30), rng.choice([1, 2, 3, 4, 5, 8, 10, 25, 100, 0, -2])
    part, nearly = whole / 10 ** rng.choice([2, 2, 2, rng.randint(0, 7)]), rng.choice([0, 0, 1e-6, 3e-6])
    parts = {"i": whole, "d": part, "o": part + nearly, "a": above, "b": below, "q": above / (below or 1) + nearly}
    letter = rng.choice(rng.choice(["abnrtxyzAXiedCT", "ABCDE", ascii_letters]))
    small = {"n": rng.randint(1, 9), "m": rng.randint(1, 9), "l": letter, "w": rng.choice(_NAMES.split())}
    return {**parts, **small}


def _form(rng: Rng, kind: str, fields: dict[str, object], usual: bool) -> str:
    number = rng.choice(["number", "fraction"]) if kind == "unit" else kind
    parts = (number, kind) if kind == "unit" else (kind,)
    return "".join(rng.choice((_USUAL if usual else _TEMPLATES)[part]) for part in parts).format(**fields)


def _with_pieces(rng: Rng, text: str) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        place, how = rng.randint(0, len(text)), rng.random()
        end = place + rng.choice([1, 1, 2, 5])
        if how < 0.7:
            text = text[:place] + rng.choice(PIECES) + text[place:]
        elif how < 0.85:
            text = text[:place] + text[end:]
        else:
            text = text[:end] + text[place:]
    return text


def pairs(count: int, seed: int, question: str) -> Iterator[tuple[str, str, str]]:
    """Gives `count` triples: kind of gold answer, gold text, answer text.

    Args:
        question: ``"reward"``: answers as models write them. ``"equal"``: answers like gold ones.
    """
    rng = random.Random(seed)
    answers = ANSWERS if question == "reward" else [*GOLDS, "\\boxed{{{}}}"]
    for _ in range(count):
        # Most have usual forms and texts, and no odd pieces: a decider leaves most others.
        usual, kind, fields = rng.random() < 0.6, rng.choice([*KINDS]), _fields(rng)
        inside, how = _form(rng, kind, fields, usual), rng.random()
        if how < 0.4:
            other = inside
        elif how < 0.5:
            other = _with_pieces(rng, inside)
        elif how < 0.8:
            other = _form(rng, rng.choice([kind, kind, *KINDS]), fields, usual)
        else:
            other = _form(rng, rng.choice([kind, *KINDS]), _fields(rng), usual)
        around = rng.choice(answers[:9] if usual else answers)
        gold = rng.choice(GOLDS[:14] if usual else GOLDS).format(inside)
        answer, how = around.format(*[other] * around.count("{}")), rng.random()
        gold = _with_pieces(rng, gold) if 0.3 < how < 0.5 and not usual else gold
        answer = _with_pieces(rng, answer) if how < 0.4 and not usual else answer
        yield kind, gold, answer


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
