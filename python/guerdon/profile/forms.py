"""The usual forms of a right answer, and substitutes for a wrong one.

- A form is a template with ``{final}`` (the final answer: what follows ``####``, what the last
  ``\\boxed{}`` holds, else the whole text) and ``{reference}`` (the column as it is).
- A template's other braces stay as they are, so LaTeX needs no escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guerdon.errors import DataError

__all__ = [
    "ANSWER_COLUMNS",
    "FORMS",
    "PROGRAM_FORMS",
    "Form",
    "answer_column",
    "as_number",
    "fill",
    "final_answer",
    "wrong_answer",
]

ANSWER_COLUMNS: Final = (
    *("answer", "solution", "ground_truth", "reference", "target", "gold", "label", "final_answer", "expected"),
    *("expected_answer", "reference_answer", "correct_answer", "answers", "labels", "gt", "reward_model"),
)
"""Names of columns that hold the right answer, the likeliest first."""

_REASONING: Final = "The question asks for one value, so work it out step by step and check it."


_REASONING_PART: Final = re.compile(r"<(think|reasoning)>.*?</\1>\s*", re.DOTALL)


@dataclass(frozen=True)
class Form:
    """One way to give a final answer: its name, its template, and the text that ends the answer."""

    name: str
    template: str
    closer: str = ""

    @property
    def reasons(self) -> bool:
        """Returns whether it has a part for reasoning."""
        return "<think>" in self.template or "<reasoning>" in self.template

    @property
    def core(self) -> str:
        """The template without its reasoning."""
        return _REASONING_PART.sub("", self.template)

    def render(self, final: str, reference: str | None = None) -> str:
        """The completion that gives `final`."""
        return fill(self.template, {"final": final, "reference": final if reference is None else reference})


FORMS: Final = (
    Form("bare", "{final}"),
    Form("as given", "{reference}"),
    Form("\\boxed{}", "The answer is \\boxed{{final}}.", "}"),
    Form("$\\boxed{}$", "The answer is $\\boxed{{final}}$.", "}$"),
    Form("dollars", "${final}$", "$"),
    Form("####", f"{_REASONING}\n#### {{final}}"),
    Form("<answer>", "<answer>{final}</answer>", "</answer>"),
    Form("<think> <answer>", f"<think>\n{_REASONING}\n</think>\n<answer>\n{{final}}\n</answer>", "</answer>"),
    Form("<think> <answer>, one line", f"<think>{_REASONING}</think><answer>{{final}}</answer>", "</answer>"),
    Form("<think> \\boxed{}", f"<think>\n{_REASONING}\n</think>\nThe answer is $\\boxed{{{{final}}}}$.", "}$"),
    Form(
        "<think> <answer> \\boxed{}",
        f"<think>\n{_REASONING}\n</think>\n<answer>\n\\boxed{{{{final}}}}\n</answer>",
        "</answer>",
    ),
    Form(
        "<reasoning> <answer>",
        f"<reasoning>\n{_REASONING}\n</reasoning>\n<answer>\n{{final}}\n</answer>\n",
        "</answer>",
    ),
    Form("sentence", "The answer is {final}."),
    Form("the answer is:", f"{_REASONING} The answer is: {{final}}"),
    Form("Answer:", f"{_REASONING}\n\nAnswer: {{final}}"),
    Form("Final Answer:", f"{_REASONING}\n\nFinal Answer: {{final}}"),
    Form("JSON", '{"answer": "{final}"}', '"}'),
    Form("code", "```python\n{final}\n```", "```"),
)

_HASHES: Final = re.compile(r"####\s*(.+?)\s*$", re.DOTALL)
_FIELD: Final = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_NUMBER: Final = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")

PROGRAM_FORMS: Final = (Form("as given", "{reference}"), Form("fenced", "```python\n{reference}\n```"))


def fill(template: str, values: Mapping[str, object]) -> str:
    """Fills in the fields that `values` has; other braces stay."""
    return _FIELD.sub(lambda match: str(values.get(match[1], match[0])), template)


def fields(template: str) -> list[str]:
    """The names in braces in a template, LaTeX's own among them."""
    return _FIELD.findall(template)


def answer_column(rows: Sequence[Mapping[str, Any]], wanted: Iterable[str], *, named: str | None = None) -> str | None:
    """The column with the right answers: one of the usual names, first among those `wanted`.

    Raises:
        DataError: The rows lack the column `named`.
    """
    have = dict.fromkeys(name for row in rows for name in row)
    if named is not None:
        if named not in have:
            raise DataError(f"the rows have no column {named!r} of answers. They have: {', '.join(have)}.")
        return named
    asked = set(wanted)
    known = [name for name in ANSWER_COLUMNS if name in have]
    return next((name for name in known if name in asked), known[0] if known else None)


def reference_text(value: Any) -> str | None:
    """Returns a reference as text: the first of several, ``ground_truth`` of an object; None if
    missing."""
    if isinstance(value, Mapping):
        inner = value.get("ground_truth", value.get("answer"))
        return json.dumps(value, ensure_ascii=False) if inner is None else reference_text(inner)
    if isinstance(value, (list, tuple)):
        return reference_text(value[0]) if len(value) else None
    if value is None or (isinstance(value, float) and value != value):
        return None
    return str(value)


def final_answer(reference: str) -> str:
    """The final answer in a reference, which may be a whole solution."""
    if match := _HASHES.search(reference):
        return match[1]
    boxed = _last_boxed(reference)
    if boxed is not None:
        return boxed
    text = reference.strip()
    for opening, closing in (("<answer>", "</answer>"), ("$$", "$$"), ("$", "$")):
        start, end = text.rfind(opening, 0, max(0, len(text) - len(closing))), text.rfind(closing)
        if 0 <= start < end and (opening == "<answer>" or (start == 0 and end == len(text) - len(closing))):
            return text[start + len(opening) : end].strip()
    return text


def as_number(text: str) -> float | None:
    """The number that `text` is, commas for thousands allowed."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    return float(text.strip().replace(",", ""))


def wrong_answer(final: str, others: Iterable[str]) -> str:
    """An answer that is certainly wrong: another row's that differs in value, else a made one."""
    value = as_number(final)
    for other in others:
        number = as_number(other)
        if value is not None and number is not None:
            # No tolerance makes them equal, and neither contains the other.
            if abs(number - value) > 0.2 * max(abs(value), abs(number), 1.0) and not (final in other or other in final):
                return other
        elif (
            (value is None) == (number is None)
            and (folded := _folded(other))
            and folded not in _folded(final)
            and _folded(final) not in folded
        ):
            return other
    if value is not None:
        return str(int(abs(value)) * 3 + 75319) if "." not in final else f"{abs(value) * 3 + 753.19:.2f}"
    return "none of these" if _folded(final) != "none of these" else "unknown"


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _last_boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    for place in range(begin, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            if depth == 0:
                return text[begin:place].strip()
            depth -= 1
    return None
