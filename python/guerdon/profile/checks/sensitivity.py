"""Does white space, case or a trailing period move the right answer's score?

That a strict function minds is no mistake in itself, so these are infos; but a policy that is right
and unrewarded for a space learns the wrong thing, and one had better know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from guerdon.profile.calibration import Calibration, spread
from guerdon.profile.check import Check
from guerdon.profile.finding import Example, Finding, excerpt
from guerdon.profile.subject import Case, Subject

__all__ = ["CHANGES", "CHECK"]

ROWS: Final = 12

CHANGES: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "space_around": ("white space around the completion", lambda text: f"  {text} \n"),
    "newline_end": ("a line break at its end", lambda text: f"{text}\n"),
    "windows_lines": ("line breaks of Windows", lambda text: text.replace("\n", "\r\n")),
    "upper_case": ("capital letters", str.upper),
    "lower_case": ("small letters", str.lower),
    "period": ("a period at its end", lambda text: text if text.rstrip().endswith(".") else f"{text}."),
}
_ANSWER_CHANGES: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "space_in_form": ("white space around the answer, in the form", lambda final: f" {final} "),
    "period_in_form": ("a period behind the answer, in the form", lambda final: f"{final}."),
    "leading_zero": (
        "a zero before the number (016 for 16)",
        lambda final: f"0{final}" if final.isdecimal() else final,
    ),
    "decimal_zero": ("the number as 16.0 for 16", lambda final: f"{final}.0" if final.isdecimal() else final),
    "no_commas": ("no commas between thousands", lambda final: final.replace(",", "")),
    "letter_case": ("the answer's letters in the other case", str.swapcase),
}


def _run(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    if calibration.programs:  # a changed letter makes another program
        return
    rows = spread(calibration.usable, ROWS)
    if not rows:
        return
    planned: list[tuple[str, Case]] = []
    for row in rows:
        right, final = calibration.right_text(row), calibration.answers[row].final
        for name, (_, change) in CHANGES.items():
            if (text := change(right)) != right:
                planned.append((name, Case(row, subject.completion(text))))
        for name, (_, change) in _ANSWER_CHANGES.items():
            if (text := change(final)) != final:
                changed = calibration.rendered(row, text)
                planned += [] if changed is None else [(name, Case(row, subject.completion(changed)))]
    scores = calibration.scores([case for _, case in planned])
    found: dict[str, list[Example]] = {}
    tried: dict[str, int] = {}
    for (name, case), score in zip(planned, scores, strict=True):
        if not score.ran or score.status.failed:
            continue  # a failure says nothing of the answer; another check says so
        tried[name] = tried.get(name, 0) + 1
        right_score = calibration.right[case.row]
        gain = calibration.gain(case.row, score)
        if gain is None or gain < 0.5:
            values = {"changed": score.shown, "reference": right_score.shown}
            found.setdefault(name, []).append(Example(case.row, excerpt(case.completion), values))
    about = {name: text for name, (text, _) in {**CHANGES, **_ANSWER_CHANGES}.items()}
    for name, examples in found.items():
        yield Finding(
            f"sensitivity:{name}",
            "info",
            f"{subject.name!r} gives {len(examples)} of {tried[name]} right answers less than half for {about[name]}. If such an "
            "answer is right to you, normalise both sides in the same way.",
            tuple(examples),
        )


CHECK: Final = Check("sensitivity", "Does a right answer score whatever its white space, case and full stop?", _run)
