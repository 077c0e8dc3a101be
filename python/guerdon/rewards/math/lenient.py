r"""Answers that ``notation="lenient"`` reads and math-verify does not, or reads wrongly.

- An answer is found behind the end of a chain of thought: within ``<answer>``, in the last box,
  behind ``####`` or "Answer:", in the last formula, or it is the whole text: a number, or any short
  gold text.
- Both answers are brought to forms that math-verify reads: ``\frac18``, mixed numbers, ``1.5e3``,
  ``12\,000``, ``½``, ``√2``. Rational numbers are compared exactly, and units by their names.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from guerdon.rewards.math.plain_gold import boxed, same_words

__all__ = ["prepared"]

_THOUGHT: Final = re.compile(r"^.*</think>", re.DOTALL)
_UNFINISHED: Final = re.compile(r"<think>.*", re.DOTALL)
# Tags around an answer: of R1's format rewards, and of GLM.
_TAGS: Final = (("<answer>", "</answer>"), ("<|begin_of_box|>", "<|end_of_box|>"))
_END: Final = re.compile(r"(?:</s>|<eos>|<end_of_turn>|<[|｜][^<>]{1,40}[|｜]>)$")
_LONGEST_END: Final = 50
_MOST_ENDS: Final = 4
_ANSWER: Final = re.compile(r"\banswer\b\**\s*(?::|is\b:?)\s*\**\s*([^\n]*)", re.IGNORECASE)
_HASHES: Final = re.compile(r"####\s*([^\n]*)")
# A heading behind ####, unless it is the last line.
_HEADING: Final = re.compile(
    r"\d+[.):]\s+[A-Za-z*]|(?:step|part|case)\b|[^\d$\\=]*(?::\s*|\b(?:solution|explanation|summary|final|analysis|approach|method|"
    r"result|reasoning|understand\w*|verif\w*|comput\w*|calculat\w*|conclu\w*)\b[^\d$\\=]*)$",
    re.IGNORECASE,
)
_REASON: Final = re.compile(r",?\s+(?:because|since|as|which)\b.*")
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_MARKS: Final = " *`_"
_FORMULA: Final = re.compile(
    r"\$\$([^$]+)\$\$|(?<!\\)\$([^$\n]+)(?<!\\)\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL
)
_LONGEST: Final = 400

_HALVES: Final = dict(
    zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", "1/2 1/3 2/3 1/4 3/4 1/5 2/5 3/5 4/5 1/6 5/6 1/8 3/8 5/8 7/8".split(), strict=True)  # noqa: SIM905
)
_POWERS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SIGNS: Final = {
    "−": "-",
    "–": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "÷": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "∅": r"\emptyset ",
    r"\varnothing": r"\emptyset",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "∪": r"\cup ",
    "°": r"^\circ",
    r"\left": "",
    r"\right": "",
    r"\displaystyle": "",
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\$": "",
    "$": "",
    r"\!": "",
    "{:}": ":",
}
_COMMA: Final = r"(?<=\d)(?<!\b0),(?=\d{3}(?!\d))"
_COMMAS: Final = re.compile(rf"(\([^()]*\)|\([^()]*\]|\[[^\[\]]*\]|\[[^\[\])]*\)|\\\{{.{{,400}}?\\\}})|{_COMMA}")
# Separators of a pair or set whose tight commas are those of thousands.
_SEPARATED: Final = re.compile(r",\s|,\\[,;: ]|,0\d\d(?!\d)")
_CURRENCIES: Final = "€£¥₹"


def _without_commas(part: re.Match[str]) -> str:
    if part[1] and not _SEPARATED.search(part[1]):
        return part[1]
    return re.sub(_COMMA, "", part[1] or "")


_REWRITES: Final = (
    (re.compile(r"(?<!\\)\\[()\[\]]"), ""),
    # Thousands: 12\,000, 12{,}000, 12 000; and 1,234, but not in (1,234) and \{1,234\}.
    (re.compile(r"(?<=\d)(?:\\,|\{,\}|\\ |\\;| |\u00a0|\u202f)(?=\d{3}(?!\d))"), ""),
    (_COMMAS, _without_commas),
    (re.compile(r"(?<!\\)\\[,;: ]|~"), " "),
    (re.compile(r"^\s*(?:\\approx|≈)"), ""),
    (re.compile(r"([€£¥₹])\s*(\d[\d.]*)"), r"\2\\text{\1}"),
    (re.compile(r"(?<=\d)\s*([€£¥₹])"), r"\\text{\1}"),
    (re.compile(r"^\\(?:text|mathrm|mbox)\{(\s*[-+]?[\d.][^{}]*)\}$"), r"\1"),
    # A letter behind \frac ends the word: \frac18 and \frac3{47} have numbers of one digit.
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"\\frac\s*(\{[^{}]*\})\s*(\d)"), r"\\frac\1{\2}"),
    (re.compile(r"√\s*\{"), r"\\sqrt{"),
    (re.compile(r"√\s*(?:\(([^()]*)\)|(\w+))"), lambda match: rf"\sqrt{{{match[1] or match[2]}}}"),
    (re.compile(r"\\sqrt\s*(\w)(?![\w{])"), r"\\sqrt{\1}"),
    (re.compile(r"\blog_(e|\{e\})"), "ln"),
    (re.compile(r"\\ln"), r"\\ln"),
)
_SCIENTIFIC: Final = re.compile(
    r"([-+]?\d+(?:\.\d*)?|[-+]?\.\d+)(?:[eE]([-+]?\d{1,4})|\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{([-+]?\d{1,4})\}|(-?\d{1,4})))"
)
_NUMBER: Final = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)")
# A whole number, a power of one or a factorial.
_WHOLE_PART: Final = r"\s*([-+]?\d+(?:\s*\^\s*(?:\{\d{1,4}\}|\d{1,4})|!)?)\s*"
_WHOLE: Final = re.compile(r"([-+]?\d+)\s*(?:\^\s*\{?(\d{1,4})\}?|(!))?")
_QUOTIENT: Final = re.compile(rf"{_WHOLE_PART}/{_WHOLE_PART}")
_FRAC: Final = re.compile(rf"([-+]?)\s*\\frac\s*\{{{_WHOLE_PART}\}}\s*\{{{_WHOLE_PART}\}}")
_MIXED: Final = re.compile(
    r"([-+]?)\s*(\d+)\s*(?:\\ |\s|(?=\\frac))\s*(?:\\frac\{\s*(\d+)\s*\}\{\s*(\d+)\s*\}|(\d+)\s*/\s*(\d+))"
)
_REPEATING: Final = re.compile(r"([-+]?)(\d*)\.(\d*)\\overline\{?(\d+)\}?")
_MULTIPLE_OF_PI: Final = re.compile(r"[-+]?(?:[1-9]\d*)?\s*\\pi")
_UNIT: Final = re.compile(
    r"\s*(?:\\(?:text|mathrm|mbox|textrm)\s*\{\s*([^{}]*?)\s*\}|(\^\s*\{?\\circ\}?)|\\?(%)|"
    r"([A-Za-z]+\.?(?:\s?/\s?[A-Za-z]+|\sper\s[A-Za-z]+|\s[A-Za-z]+)?))\s*(?:\^\s*\{?([23])\}?)?\s*$"
)
# The rest of a plural without its "s": boxe, potatoe, glasse.
_PLURAL: Final = re.compile(r"(?<=\w)se$|(?<=[xo])e$|(?<=[cs]h)e$")
_OF_POWER: Final = re.compile(r"(?:sq|square|cu|cubic)\.?\s+")
_SAME_UNITS: Final = {
    "meter": "m",
    "metre": "m",
    "centimeter": "cm",
    "centimetre": "cm",
    "kilometer": "km",
    "kilometre": "km",
    "millimeter": "mm",
    "inch": "in",
    "inche": "in",
    "foot": "ft",
    "feet": "ft",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "hour": "h",
    "hr": "h",
    "gram": "g",
    "kilogram": "kg",
    "pound": "lb",
    "degree": "°",
    "^\\circ": "°",
    "^{\\circ}": "°",
    "percent": "%",
    "per cent": "%",
    "dollar": "$",
    "liter": "l",
    "litre": "l",
}
_SHORT_UNITS: Final = ("m", "s", "g", "h", "l", "°", "$", "€", "£", "¥", "₹")
# Units that numbers are written to without a space.
_JOINED: Final = frozenset(
    "m s g h l cm mm km kg mg ml lb oz ft in yd mi hr am pm hz kn pa kw kj ev kv mv dm nm dl kb mb gb ha yr rs wh".split()  # noqa: SIM905
)
_OF_TIME: Final = frozenset(("s", "h", "hr"))
_SCALES: Final = {
    "%": Fraction(1, 100),
    "dozen": Fraction(12),
    "hundred": Fraction(100),
    "thousand": Fraction(10**3),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "trillion": Fraction(10**12),
}
_FEW_WORDS: Final = 3
_LONGEST_TEXT: Final = 20_000
_MOST_DIGITS: Final = 5000
_MOST_BITS: Final = 100_000
_LARGEST_FACTORIAL: Final = 5000


def prepared(gold: str, text: str, *, alone: bool = False) -> float | tuple[str, str] | None:
    """The score of a text; or both answers, for math-verify; None if there is no gold answer.

    Args:
        alone: The text may be an answer alone.
    """
    wanted = answer_of(gold, gold=True)
    if not wanted:
        return None
    given = answer_of(text, gold=alone)
    if not given or (_currency(wanted) and _currency(given) and _currency(wanted).isdisjoint(_currency(given))):
        return 0.0
    wanted, given = rewritten(wanted), rewritten(given)
    found = decided(wanted, given)
    return (rf"\boxed{{{wanted}}}", rf"\boxed{{{given}}}") if found is None else float(found)


def answer_of(text: str, *, gold: bool) -> str | None:
    """Returns the answer in a text; None if there is none.

    Args:
        gold: A gold text, which may be the answer alone, or end in it.
    """
    text = _UNFINISHED.sub("", _THOUGHT.sub("", text))
    for begin, end in _TAGS:
        before, found_tag, inside = text.rpartition(begin)
        inside, closed, after = inside.partition(end)
        # A sentence may repeat the number of a box.
        is_prose = len(inside.split()) > _FEW_WORDS and not _FORMULA.search(inside) and not boxed(inside)
        if found_tag and closed and inside.strip() and not boxed(after) and not (is_prose and boxed(before)):
            text, gold = inside, not _FORMULA.search(inside)
    text = _without_ends(text)
    if found := [one for one in boxed(text) if one.strip()]:
        return found[-1]
    if (behind := _behind(text)) is not None:
        return behind
    if gold and len(text) <= _LONGEST:
        return text.strip()
    formulas = _FORMULA.findall(text[-_LONGEST_TEXT:])
    if formulas:
        return "".join(formulas[-1]).strip() or None
    text = text.strip().strip("*")
    return text if len(text) <= _LONGEST and _rational(rewritten(text)) is not None else None


def _without_ends(text: str) -> str:
    """The text without the tokens of chat formats at its end."""
    text = text.rstrip()
    for _ in range(_MOST_ENDS):
        if (match := _END.search(text[-_LONGEST_END:])) is None:
            break
        text = text.removesuffix(match[0]).rstrip()
    return text


def _behind(text: str) -> str | None:
    """The last answer that a text names, behind "Answer:", or behind ``####`` outside of a
    heading."""
    found: list[tuple[int, str]] = []
    for pattern in (_ANSWER, _HASHES):
        for match in pattern.finditer(text):
            one = match[1].lstrip(_MARKS).rstrip(_MARKS + ".")
            if pattern is _HASHES and match.end() < len(text) and _HEADING.match(one[:_LONGEST]):
                continue
            if one:
                found.append((match.start(), one))
    if not found:
        return None
    one = max(found)[1]
    short = _REASON.sub("", one).rstrip(_MARKS + ".") if len(one) <= _LONGEST else one
    return short if not _WORD.search(short) or _is_number(short) else one


def _is_number(text: str) -> bool:
    """Returns whether it is a number, perhaps with a unit."""
    return len(text) <= _LONGEST and _measured(rewritten(text))[0] is not None


def _currency(text: str) -> set[str]:
    """The signs of currencies in a text; dollar signs in pairs are those of formulas."""
    return {"$"} if r"\$" in text or text.count("$") % 2 else {sign for sign in _CURRENCIES if sign in text}


def rewritten(answer: str) -> str:
    """The answer in a form that math-verify reads."""
    text = answer.strip().rstrip(".")
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    text = re.sub(r"(?<=\w)[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda match: f"^{{{match[0].translate(_POWERS)}}}", text)
    for sign, plain in _HALVES.items():
        if sign not in text:
            continue
        text = re.sub(rf"(?<=\d)\s*{sign}", f" {plain}", text)
        text = text.replace(sign, r"\frac{{{}}}{{{}}}".format(*plain.split("/")))
    for pattern, made in _REWRITES:
        text = pattern.sub(made, text)
    text = text.strip()
    number = _rational(text)
    if number is not None and not _NUMBER.fullmatch(text) and _short(number):
        return _written(number)
    return text


def decided(gold: str, answer: str) -> bool | None:
    """Returns whether two answers that were `rewritten` are the same; None: math-verify has to
    say."""
    if gold == answer:
        return True
    words = same_words(gold, answer)
    if words:
        return True
    (ours, unit), (theirs, other) = _measured(gold), _measured(answer)
    if (ours is None) != (theirs is None) and _MULTIPLE_OF_PI.fullmatch(gold if ours is None else answer):
        return False  # math-verify rounds
    if ours is None or theirs is None:
        return False if words is False and theirs is not None else None
    if unit and other and unit != other and not {unit, other} <= _SCALES.keys():
        return False
    # 9 % is not 9; a unit that only one of them names is taken for granted.
    if (unit in _SCALES or other in _SCALES) and unit != other:
        return ours * _SCALES.get(unit, 1) == theirs * _SCALES.get(other, 1)
    if (
        bool(unit) != bool(other)
        and (unit or other) not in _SHORT_UNITS
        and len((unit or other).partition("^")[0]) == 1
    ):
        return None  # a variable, as in 2x and 2x^2
    return ours == theirs


def _measured(text: str) -> tuple[Fraction | None, str]:
    """A rational number and its unit."""
    number = _rational(text)
    if number is not None:
        return number, ""
    match = _UNIT.search(text) if len(text) <= _LONGEST else None
    if match is None or not match.start():
        return None, ""
    *names, power = match.groups()
    if names[-1] and _is_product(names[-1].lower(), text[match.start()], power):
        return None, ""
    unit = next(filter(None, names), "").strip().rstrip(".").lower()
    if of := _OF_POWER.match(unit):
        unit, power = unit[of.end() :], "2" if of[0].startswith("s") else "3"
    single = unit if len(unit) < 3 else unit.removesuffix("s")
    # One form of singular and plural: cities, city; movies, movie; boxes, box; glasses, glass.
    stem = _PLURAL.sub("", single)
    stem = f"{stem[:-2]}y" if stem.endswith("ie") else stem
    unit = _SAME_UNITS.get(unit, _SAME_UNITS.get(single, stem)) + (f"^{power}" if power else "")
    return _rational(text[: match.start()].strip()), unit


def _is_product(name: str, before: str, power: str | None) -> bool:
    """Returns whether letters are factors, as in 3xy, 3 x y and 3 x/y, or words, and not a unit."""
    words = re.split(r"[\s/]+", name.rstrip("."))
    known = [word in _JOINED or word.removesuffix("s") in (*_SAME_UNITS, *_SCALES) for word in words]
    if words[0] in ("or", "and", "not") or (power and not known[0]):
        return True
    if len(words) > 1:
        of_units = all(known) and ("/" not in name or words[1] in _OF_TIME)
        return all(len(word) == 1 for word in words) and not of_units
    return len(words[0]) == 2 and not (known[0] or before.isspace())


def _rational(text: str) -> Fraction | None:
    """The rational number that a text is."""
    if len(text) > _MOST_DIGITS:
        return None
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    text = re.sub(r"^([-+])\s+(?=[\d.\\])", r"\1", text)
    if _NUMBER.fullmatch(text):
        return _fraction(text)
    if match := _SCIENTIFIC.fullmatch(text):
        return _fraction(match[1]) * _power(10, int(match[2] or match[3] or match[4]))
    if match := _QUOTIENT.fullmatch(text):
        return _quotient(match[1], match[2])
    if match := _FRAC.fullmatch(text):
        found = _quotient(match[2], match[3])
        return -found if found is not None and match[1] == "-" else found
    if match := _MIXED.fullmatch(text):
        part = _quotient(match[3] or match[5], match[4] or match[6])
        if part is None or part >= 1:
            return None
        mixed = int(match[2]) + part
        return -mixed if match[1] == "-" else mixed
    if match := _REPEATING.fullmatch(text):
        sign, whole, fixed, repeated = match.groups()
        part = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(fixed))
        value = _fraction(f"{whole or 0}.{fixed or 0}") + part
        return -value if sign == "-" else value
    return None


def _fraction(digits: str) -> Fraction:
    whole, _, rest = digits.partition(".")
    sign = -1 if whole.startswith("-") else 1
    return sign * Fraction(int((whole.lstrip("+-") + rest) or 0), 10 ** len(rest))


def _power(base: int, exponent: int) -> Fraction:
    return Fraction(base**exponent) if exponent >= 0 else Fraction(1, base**-exponent)


def _whole(text: str) -> int | None:
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    number = int(match[1])
    if match[2]:
        exponent = int(match[2])
        power = abs(number) ** exponent if number.bit_length() * exponent < _MOST_BITS else None
        return -power if power is not None and match[1].startswith("-") else power
    if match[3]:
        return math.factorial(number) if 0 <= number <= _LARGEST_FACTORIAL else None
    return number


def _quotient(over: str, under: str) -> Fraction | None:
    top, bottom = _whole(over), _whole(under)
    return Fraction(top, bottom) if top is not None and bottom else None


def _short(number: Fraction) -> bool:
    return max(abs(number.numerator), number.denominator) < 10**30


def _written(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    sign = "-" if number < 0 else ""
    return rf"{sign}\frac{{{abs(number.numerator)}}}{{{number.denominator}}}"
