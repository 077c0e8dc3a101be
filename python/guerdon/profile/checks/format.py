"""A function that scores the form alone: broken forms must not get what whole ones get.

Only for functions whose scores do not depend on the reference; of others the form is part of a
probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.calibration import Calibration
from guerdon.profile.check import Check
from guerdon.profile.finding import Example, Finding, excerpt
from guerdon.profile.forms import FORMS
from guerdon.profile.subject import Case, Subject

__all__ = ["CHECK"]

ANSWER: Final = "42"
PLAIN: Final = "bare"


def _run(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    if calibration.asks or subject.grouped:
        return
    whole = {form.name: form for form in FORMS if form.name != "as given"}
    cases = [Case(0, subject.completion(form.render(ANSWER))) for form in whole.values()]
    scores = dict(zip(whole, subject.score(cases, variant=calibration.variant), strict=True))
    plain = scores[PLAIN].value
    if plain is None:
        return
    best = max((score.value for score in scores.values() if score.value is not None), default=plain)
    # One that scores short texts or none at all tells no forms apart.
    liked = [form for form in whole.values() if scores[form.name].value == best and form.closer and best > plain]
    broken = []
    for form in liked:
        text = form.render(ANSWER)
        broken.append((form, text[: text.rfind(form.closer)].rstrip()))
    if not broken:
        return
    found = subject.score([Case(0, subject.completion(text)) for _, text in broken], variant=calibration.variant)
    examples = [
        Example(0, excerpt(text), {"unfinished": score.shown, "whole": best, "plain": plain}, form.name)
        for (form, text), score in zip(broken, found, strict=True)
        if score.ok and score.value is not None and score.value >= best
    ]
    if examples and len(examples) == len(liked):
        yield Finding(
            "format",
            "warning",
            f"{subject.name!r} gives a form that never ends as much as a whole one. Match the whole completion "
            "(re.fullmatch), closing tag or brace included.",
            tuple(examples),
        )


CHECK: Final = Check("format", "Does a form have to end, where only the form is scored?", _run)
