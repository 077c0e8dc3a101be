"""Probes: completions that must not score, or that a function must survive. They are data.

``probes.json`` holds the usual ones; a file of one's own, in the same form, adds to them or
replaces those with the same id. A probe's template has values of the row in braces:

- ``{prompt}``, ``{reference}``, ``{final}``, ``{wrong}`` and the row's columns; ``{form}``: the
  probe's own ``answer`` in the form in which right answers score; ``{right}``, ``{wrong_form}``.
- A row that has no such value (no number in ``{negative}``) is left out.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from guerdon.errors import DataError
from guerdon.profile.calibration import Calibration
from guerdon.profile.finding import SEVERITIES, Severity
from guerdon.profile.forms import as_number

__all__ = ["VERSION", "Probe", "completion_of", "default_probes", "load_probes"]

VERSION: Final = 1
NEEDS: Final = ("strict", "reasoning", "number")
LONGEST: Final = 1_000_000
"""Characters that ``{times:…}`` may make."""
LIST: Final = 7
"""Answers in a list of many."""

_OF_FORMS: Final = ("form", "right", "wrong_form", "right_core", "wrong_core", "all_forms", "unterminated")

FILLER: Final = "Let us look at it from another side, and go through every step again, slowly and with care. "


@dataclass(frozen=True)
class Probe:
    """One probe.

    Attributes:
        id: Its name; findings call it ``probe:<id>``.
        about: What it is, after "scores".
        template: The completion.
        expect: ``"reject"``: it must score less than halfway from wrong to right. ``"survive"``:
            no timeout, crash or exception.
        severity: Of the finding.
        do: What to do about it.
        answer: What stands in ``{form}``.
        needs: ``"strict"``: the function wants a form that ends. ``"reasoning"``: completions have
            reasoning. ``"number"``: the answer is one.
    """

    id: str
    about: str
    template: str
    expect: Literal["reject", "survive"] = "reject"
    severity: Severity = "error"
    do: str = ""
    answer: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def in_forms(self) -> bool:
        """Returns true if its completion depends on the form of answers."""
        return any(f"{{{name}}}" in self.template for name in _OF_FORMS)


@lru_cache(maxsize=1)
def default_probes() -> tuple[Probe, ...]:
    """Those of the package."""
    path = Path(__file__).with_name("probes.json")
    return _parsed(path.read_text(encoding="utf-8"), path.name)


def load_probes(path: str | Path) -> tuple[Probe, ...]:
    """The package's probes with those of a file: new ones behind, others in place.

    Raises:
        DataError: It can't be read, or one of its probes is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"probes {str(path)!r} can't be read: {error}.") from None
    probes = {probe.id: probe for probe in default_probes()}
    probes.update((probe.id, probe) for probe in _parsed(text, str(path)))
    return tuple(probes.values())


def completion_of(probe: Probe, row: int, calibration: Calibration) -> str | None:
    """The probe's text for a row; None where the row has no such value."""
    try:
        answer = None if probe.answer is None else _filled(probe.answer, row, calibration, None)
        return _filled(probe.template, row, calibration, answer)
    except LookupError:
        return None


_PLACE: Final = re.compile(r"\{(?:times:(\d+):(.+?)\}(?!\})|([a-z_]\w*)\})", re.DOTALL)


def _filled(template: str, row: int, calibration: Calibration, answer: str | None) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[2] * int(match[1])
        name = match[3]
        if name == "form" and answer is not None:
            return _needed(name, calibration.rendered(row, answer))
        made = _VALUES.get(name)
        if made is not None:
            if name not in _WITHOUT_ANSWER and row not in calibration.answers:
                raise LookupError(name)
            return _needed(name, made(row, calibration))
        fields_of_row = calibration.subject.rows[row]
        return str(fields_of_row[name]) if name in fields_of_row else match[0]

    return _PLACE.sub(value, template)


def _needed(name: str, text: str | None) -> str:
    if text is None:
        raise LookupError(name)
    return text


def _prompt(row: int, calibration: Calibration) -> str | None:
    prompt = calibration.subject.rows[row].get("prompt")
    if isinstance(prompt, (list, tuple)):
        prompt = "\n".join(str(message.get("content", "")) for message in prompt if isinstance(message, dict))
    answer = calibration.answers.get(row)
    text = "" if prompt is None else str(prompt)
    if answer is None:
        return text or None
    # A function that reads the last number, or the last word, is right to take it from there.
    last = re.findall(r"-?\d[\d,]*(?:\.\d+)?" if as_number(answer.final) is not None else r"\w+", text)[-1:]
    return None if not text or last == answer.final.split()[-1:] else text


def _shuffled(row: int, calibration: Calibration) -> str | None:
    """The words in another order; of one word, its letters."""
    final = calibration.answers[row].final
    pieces: Collection[str] = final.split() if len(final.split()) > 1 else list(final)
    joined = " " if len(final.split()) > 1 else ""
    order = random.Random(0)
    for _ in range(8):
        mixed = list(pieces)
        order.shuffle(mixed)
        text = joined.join(mixed)
        same = as_number(text) == as_number(final) if as_number(final) is not None else text == final
        if not same and text not in final:
            return text
    return None


def _listed(row: int, calibration: Calibration) -> list[str] | None:
    """Several rows' answers, this row's in the middle."""
    own = calibration.answers[row].final
    others = dict.fromkeys(answer.final for answer in calibration.answers.values())
    found = [final for final in others if final != own and final not in own and own not in final][: LIST - 1]
    if not found:
        found = [calibration.answers[row].wrong, "neither"]
    if len(found) == 1:
        found.append(calibration.answers[row].wrong + "1")
    return [*found[: len(found) // 2], own, *found[len(found) // 2 :]]


def _all(row: int, calibration: Calibration) -> str | None:
    listed = _listed(row, calibration)
    return None if listed is None else ", ".join(listed)


def _all_forms(row: int, calibration: Calibration) -> str | None:
    listed = _listed(row, calibration)
    texts = [calibration.core(row, final) for final in listed or ()]
    return "\n".join(text for text in texts if text is not None) if texts and None not in texts else None


def _unterminated(row: int, calibration: Calibration) -> str | None:
    form = calibration.form_of(row) if row in calibration.forms else None
    if form is None or not form.closer:
        return None
    text = calibration.right_text(row)
    end = text.rfind(form.closer)
    # The line's end behind "</answer>" goes too.
    return text[:end].rstrip() if end > 0 else None


Value = Callable[[int, Calibration], str | None]


def _of_final(make: Callable[[str, float | None], str | None]) -> Value:
    """A value made of the final answer, and of the number that it is."""

    def value(row: int, calibration: Calibration) -> str | None:
        final = calibration.answers[row].final
        return make(final, as_number(final))

    return value


def _ord_expression(final: str, number: float | None) -> str | None:
    whole = number is not None and number == int(number) and 32 < number < 0xD800
    return f"ord({chr(int(number))!r})" if whole and number is not None else None


def _negative(final: str, number: float | None) -> str | None:
    if not number:
        return None
    return final[1:] if final.startswith("-") else f"-{final.removeprefix('+')}"


def _decimals(final: str, number: float | None) -> str | None:
    # 0.9 more must be another number to whoever rounds or tolerates a few per cent.
    return None if number is None or "." in final or abs(number) > 15 else f"{final}.9"


def _thousands(final: str, number: float | None) -> str | None:
    if number is None or not re.fullmatch(r"-?\d{1,3}(,\d{3})+", final):
        return None
    head, _, tail = final.partition(",")
    other = head + "," + re.sub(r"\d", "9" if int(tail[0]) < 5 else "0", tail)
    value = as_number(other)
    return None if value is None or abs(value - number) < 0.05 * abs(number) else other


def _first_letter(final: str, number: float | None) -> str | None:
    short = final[:1]
    return short if len(final) > 1 and (short.isalpha() or (short.isdigit() and number is not None)) else None


_VALUES: Final[dict[str, Value]] = {
    "prompt": _prompt,
    "reference": lambda row, calibration: calibration.answers[row].reference,
    "final": lambda row, calibration: calibration.answers[row].final,
    "wrong": lambda row, calibration: calibration.answers[row].wrong,
    "right": lambda row, calibration: calibration.right_text(row),
    "wrong_form": lambda row, calibration: calibration.wrong_text(row),
    "right_core": lambda row, calibration: calibration.core(row, calibration.answers[row].final),
    "wrong_core": lambda row, calibration: calibration.core(row, calibration.answers[row].wrong),
    "shuffled": _shuffled,
    "all": _all,
    "all_forms": _all_forms,
    "unterminated": _unterminated,
    "filler": lambda row, calibration: FILLER * 300,
    "repeated": lambda row, calibration: " ".join([calibration.answers[row].final] * 300),
    "ord_expression": _of_final(_ord_expression),
    "negative": _of_final(_negative),
    "decimals": _of_final(_decimals),
    "thousands": _of_final(_thousands),
    "dot_replaced": _of_final(
        lambda final, number: final.replace(".", "x", 1) if re.search(r"\w\.\w", final) else None
    ),
    "point_dropped": _of_final(
        lambda final, number: final.replace(".", "") if number is not None and "." in final else None
    ),
    "half": _of_final(
        lambda final, number: None if number is not None or len(final) < 6 else final[: len(final) // 2].rstrip()
    ),
    "first_letter": _of_final(_first_letter),
    "digits": _of_final(lambda final, number: final if final[:1].isdigit() else None),
}
_WITHOUT_ANSWER: Final = ("prompt", "filler")


def _parsed(text: str, name: str) -> tuple[Probe, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"probes {name!r} are not JSON: {error}.") from None
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("probes"), list):
        raise DataError(f'probes {name!r}: expected {{"version": {VERSION}, "probes": […]}}.')
    probes = tuple(_probe(item, f"{name!r}, probe {number}") for number, item in enumerate(found["probes"], 1))
    ids = [probe.id for probe in probes]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    if twice is not None:
        raise DataError(f"probes {name!r}: the id {twice!r} is there twice. Give each probe its own.")
    return probes


def _probe(item: Any, where: str) -> Probe:
    known = {each.name for each in fields(Probe)}
    if not isinstance(item, dict) or not {"id", "about", "template"} <= item.keys() or not item.keys() <= known:
        raise DataError(
            f"probes {where}: expected an object with id, about, template, and of {', '.join(sorted(known))} what else there is."
        )
    needs = item.get("needs", [])
    checks = {
        "id": bool(item["id"]),
        "expect": item.get("expect", "reject") in ("reject", "survive"),
        "severity": item.get("severity", "error") in SEVERITIES,
        "needs": isinstance(needs, list) and all(need in NEEDS for need in needs),
        "text": all(isinstance(item.get(key, ""), str) for key in known - {"needs"}),
    }
    wrong = [name for name, right in checks.items() if not right]
    if wrong:
        raise DataError(
            f"probes {where}: {', '.join(wrong)} is wrong; expect is reject or survive, severity one of "
            f"{', '.join(SEVERITIES)}, needs a list of {', '.join(NEEDS)}, all else text, the id not empty."
        )
    for key in ("template", "answer"):
        if _made(item.get(key, "")) > LONGEST:
            raise DataError(
                f"probes {where}: {key} makes more than {LONGEST:,} characters with {{times:…}}, which no model writes."
            )
    return Probe(**{**item, "needs": tuple(needs)})


def _made(template: str) -> int:
    """Characters that ``{times:…}`` makes in it."""
    found = [(match[1], len(match[2])) for match in _PLACE.finditer(template) if match[1]]
    # A number of thousands of digits can't even be read.
    return sum(length * (int(times) if len(times) <= len(str(LONGEST)) else LONGEST + 1) for times, length in found)
