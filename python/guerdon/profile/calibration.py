"""Scale of a function's scores for right and wrong answers on these rows: the scale that probes are
read on.

- Each row's scale is its own: from what a wrong answer in the best form gets to what the right one
  gets there. A gain of 0 is as good as wrong, of 1 as good as right, whatever the range.
- The best form is the one in which right answers score most, on a few rows; then all rows use it.
- A function whose scores do not depend on the reference has no scale: it is known by that.
- Scores of all other forms are kept: each in which right answers score is probed too (`others`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Final, TypeVar

from guerdon._functions.callables import code_mentions
from guerdon.errors import DataError
from guerdon.profile.forms import (
    FORMS,
    PROGRAM_FORMS,
    Form,
    answer_column,
    fields,
    fill,
    final_answer,
    reference_text,
    wrong_answer,
)
from guerdon.profile.subject import Case, Row, Score, Subject, Variant

__all__ = ["Calibration", "above", "check_template", "material", "spread"]

PILOT: Final = 10
"""Rows on which all forms are tried."""

SWAPPED: Final = 4
"""Rows on which a function that takes any column is given another row's reference."""

MOST_ROWS: Final = 64
"""Rows that are scored in the best form."""

MOST_FORMS_EACH: Final = 8
"""Rows whose reference does not score in the best form for which the others are tried."""

HALFWAY: Final = 0.5

Item = TypeVar("Item")

_OWN: Final = "reference="
_CLOSERS: Final = ("</answer>", "}$", "}", "```", '"}')


@dataclass(frozen=True)
class Answer:
    """The right answer of one row, and a wrong one."""

    row: int
    reference: str
    final: str
    wrong: str


class Calibration:
    """Scores of right and wrong answers.

    Attributes:
        column: The column of answers; None without one.
        asks: Whether the function names it, or takes any column and uses this one.
        programs: Whether completions are programs.
        answers: By row; rows without a reference are missing.
        missing: Rows whose reference is missing or empty.
        form: The best form; None where no form told right from wrong.
        right: By row, its reference's score in the best form, or in the form in which it scores.
        wrong: By row, a wrong answer's score in that form.
        forms: By row, the form in which its reference scored.
        noise: How far scores of the same samples lay apart when asked again; 0 for a steady one.
        trials: By name of each form and row of the pilot, the scores of the right and a wrong
            answer.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        wants = subject.spec.wants
        self.column = answer_column(subject.rows, wants.named, named=subject.answer)
        self.answers: dict[int, Answer] = {}
        self.missing: list[int] = []
        self.form: Form | None = None
        self.right: dict[int, Score] = {}
        self.wrong: dict[int, Score] = {}
        self.forms: dict[int, Form] = {}
        self.noise = 0.0
        self.trials: dict[str, dict[int, tuple[Score, Score]]] = {}
        self._forms: tuple[Form, ...] = ()
        if self.column is not None:
            self._read_answers(self.column)
        self.asks = bool(self.answers or self.missing) and self._asked()
        # Programs are judged by cases: what stands in for the reference is a program that is right.
        self.programs = subject.spec.lane == "code"
        if self.answers and (self.asks or self.programs):
            self._calibrate()

    @cached_property
    def usable(self) -> list[int]:
        """Rows that have a scale: the right answer scores more than a wrong one."""
        return [row for row in self.right if above(self.right[row], self.wrong[row], self.noise)]

    @property
    def tells(self) -> bool:
        """Returns whether scores depend on the reference."""
        return bool(self.usable)

    def gain(self, row: int, score: Score) -> float | None:
        """Returns the position of a score between the row's wrong (0) and right (1) answer; None
        without a number or a scale."""
        right, wrong = self.right[row].value, self.wrong[row].value
        if not score.ok or score.value is None or right is None:
            return None
        low = min(wrong, right) if wrong is not None else min(0.0, right - 1.0)
        return (score.value - low) / (right - low) if right > low else None

    def pays(self, row: int, score: Score) -> bool:
        """Returns true if a score is at least half of the way from the row's wrong to its right
        answer."""
        gain = self.gain(row, score) if row in self.right else None
        return gain is not None and gain >= HALFWAY

    def form_of(self, row: int) -> Form | None:
        """The form of a row's completions; None where the user's template has no place for another
        answer."""
        form, answer = self._form(row), self.answers[row]
        mine = self._in_row(form, answer)
        return None if form.name == _OWN and mine.template == self._whole(form, answer) else mine

    def rendered(self, row: int, text: str) -> str | None:
        """`text` as the final answer of `row`, in the row's form; None where it has no place."""
        form = self.form_of(row)
        return None if form is None else form.render(text)

    def core(self, row: int, text: str) -> str | None:
        """As `rendered`, without the form's reasoning."""
        form = self.form_of(row)
        return None if form is None else fill(form.core, {"final": text, "reference": text})

    def others(self) -> list[Calibration]:
        """This calibration in each other form in which references of the pilot score."""
        found = []
        for form in self._forms:
            pairs = self.trials[form.name]
            rows = [row for row, pair in pairs.items() if row in self.usable and above(*pair, self.noise)]
            if form is not self.form and rows:
                view = copy.copy(self)
                vars(view).pop("usable", None)
                view.form, view.forms = form, dict.fromkeys(rows, form)
                view.right = {row: pairs[row][0] for row in rows}
                view.wrong = {row: pairs[row][1] for row in rows}
                found.append(view)
        return found

    def rewarded_wrong_answers(self) -> dict[str, list[tuple[int, Score]]]:
        """By form, the rows on which a wrong answer in it gets half of what the right one gets in
        the best form."""
        found: dict[str, list[tuple[int, Score]]] = {}
        # A score in a group depends on the other samples.
        trials = {} if self.subject.grouped else self.trials
        for name, pairs in trials.items():
            for row, (_, wrong) in pairs.items():
                if row in self.usable and self.pays(row, wrong):
                    found.setdefault(name, []).append((row, wrong))
        return found

    @cached_property
    def variant(self) -> Variant:
        """Returns the variant that scores each sample by itself: one row at a time if that gives
        the scores that a whole batch gives."""
        if not self.subject.batch:
            return "call"
        samples = material(self.subject, MOST_ROWS // 2, calibration=self)
        whole, alone = self.subject.score(samples), self.subject.score(samples, variant="rowwise")
        return "rowwise" if all(map(Score.same, whole, alone)) else "call"

    def scores(self, cases: Sequence[Case]) -> list[Score]:
        """Scores of single samples; where a score depends on its group, in a group with the right
        and the wrong answer of the row."""
        subject = self.subject
        if not subject.grouped or not all(case.row in self.answers for case in cases):
            return subject.score(cases, variant=self.variant)
        grouped = []
        for case in cases:
            texts = self.right_text(case.row), self.wrong_text(case.row)
            grouped += [case, *(Case(case.row, subject.completion(text), case.columns) for text in texts)]
        return subject.score(grouped, group=3)[::3]

    def _asked(self) -> bool:
        """Returns whether the function names the column of answers or, taking any column, uses
        it."""
        wants, column = self.subject.spec.wants, self.column
        if column is None or column in wants.named:
            return column is not None
        if not wants.row:
            return False
        target = self.subject.spec.target
        return code_mentions(getattr(target, "score", target), column) or self._uses()

    def _uses(self) -> bool:
        """Returns whether another row's reference changes a score."""
        assert self.column is not None
        own, swapped = [], []
        for place in list(self.answers)[:SWAPPED]:
            answer = self.answers[place]
            for form in FORMS:
                text = self.subject.completion(form.render(answer.final, answer.reference))
                own.append(Case(place, text))
                swapped.append(Case(place, text, {self.column: answer.wrong}))
        return not all(map(Score.same, self.subject.score(own), self.subject.score(swapped)))

    def _read_answers(self, column: str) -> None:
        finals: dict[int, tuple[str, str]] = {}
        for place, row in enumerate(self.subject.rows):
            reference = reference_text(row.get(column))
            if reference is None or not reference.strip():
                self.missing.append(place)
            elif len(finals) < MOST_ROWS:
                finals[place] = reference, final_answer(reference)
        known = [final for _, final in finals.values()]
        for number, (place, (reference, final)) in enumerate(finals.items()):
            others = known[number + 1 :] + known[:number]
            self.answers[place] = Answer(place, reference, final, wrong_answer(final, others))

    def _calibrate(self) -> None:
        template = self.subject.reference
        if template is not None:
            check_template(template, self.subject.rows)
            forms: tuple[Form, ...] = (Form(_OWN, template),)
            self._drop_equal_texts(forms[0])
        else:
            forms = PROGRAM_FORMS if self.programs else FORMS
        pilot = list(self.answers)[:PILOT]
        self._forms, self.trials = forms, {form.name: self._tried(form, pilot) for form in forms}
        self.form = _best(forms, self.trials)
        chosen = self.form or forms[0]
        scores = self._tried(chosen, list(self.answers))
        self.noise = max((_apart(self.trials[chosen.name][place], scores[place]) for place in pilot), default=0.0)
        for place, (right, wrong) in scores.items():
            self.right[place], self.wrong[place], self.forms[place] = right, wrong, chosen
        failing = [place for place, (right, wrong) in scores.items() if not above(right, wrong)]
        for form in forms:
            if form is chosen or not failing or self.form is None:
                continue
            for place, (right, wrong) in self._tried(form, failing[:MOST_FORMS_EACH]).items():
                if above(right, wrong):
                    self.right[place], self.wrong[place], self.forms[place] = right, wrong, form
                    failing.remove(place)

    def _drop_equal_texts(self, form: Form) -> None:
        """Leaves out rows of which the user's template gives no wrong completion."""
        same = [row for row, answer in self.answers.items() if len({*self._texts(form, answer)}) < 2]
        if same and len(same) == len(self.answers):
            raise DataError(
                f"reference={form.template!r} gives the same completion for right and wrong answers of {self.column!r}: "
                "name the column of answers in it."
            )
        for row in same:
            del self.answers[row]

    def _form(self, row: int) -> Form:
        return self.forms.get(row) or self.form or FORMS[0]

    def _in_row(self, form: Form, answer: Answer) -> Form:
        """The form, and of the user's template the completion of the row with a field in place of
        its final answer."""
        if form.name != _OWN:
            return form
        template = self._whole(form, answer)
        if answer.final:
            template = re.sub(rf"(?<!\w){re.escape(answer.final)}(?!\w)", "{final}", template)
        behind = template.rpartition("{final}")[2].lstrip()
        return Form(_OWN, template, next((each for each in _CLOSERS if behind.startswith(each)), ""))

    def _whole(self, form: Form, answer: Answer) -> str:
        """The row's completion with the right answer; the data's own braces stay."""
        if form.name != _OWN:
            return form.render(answer.final, answer.reference)
        columns = dict(self.subject.rows[answer.row])
        if self.column is not None:
            columns[self.column] = answer.reference
        return fill(form.template, {**columns, "final": answer.final, "reference": answer.reference})

    def _texts(self, form: Form, answer: Answer) -> tuple[str, str]:
        """The completions with the right and with a wrong answer, which is that of another row
        where the user's template has no place for one."""
        mine, right = self._in_row(form, answer), self._whole(form, answer)
        reference = answer.reference.replace(answer.final, answer.wrong) if answer.final else answer.wrong
        wrong = right if mine.template == right else mine.render(answer.wrong, reference)
        if right == wrong:
            texts = (self._whole(form, each) for each in self.answers.values() if each.final != answer.final)
            wrong = next((text for text in texts if text != right), right)
        return right, wrong

    def _tried(self, form: Form, rows: list[int]) -> dict[int, tuple[Score, Score]]:
        texts = [text for place in rows for text in self._texts(form, self.answers[place])]
        samples = [Case(rows[n // 2], self.subject.completion(text)) for n, text in enumerate(texts)]
        found = self.subject.score(samples, group=2 if self.subject.grouped else None)
        return {place: (found[2 * n], found[2 * n + 1]) for n, place in enumerate(rows)}

    def wrong_in(self, name: str, row: int) -> str:
        """A wrong answer of `row` in the form of this name."""
        return self._texts(next(form for form in self._forms if form.name == name), self.answers[row])[1]

    def right_text(self, row: int) -> str:
        """The completion that should score on `row`."""
        return self._texts(self._form(row), self.answers[row])[0]

    def wrong_text(self, row: int) -> str:
        """The same form with a wrong answer."""
        return self._texts(self._form(row), self.answers[row])[1]


def check_template(template: str, rows: Sequence[Row]) -> None:
    """Refuse a template that names no column of the rows.

    Raises:
        DataError: It names none.
    """
    have = {name for row in rows for name in row} | {"final", "reference"}
    if not any(name in have for name in fields(template)):
        raise DataError(f"reference={template!r} names no column in braces. The rows have: {', '.join(sorted(have))}.")


def material(subject: Subject, most: int = MOST_ROWS, *, calibration: Calibration | None = None) -> list[Case]:
    """Completions on which to compare a function with itself: the rows' own, and right and wrong
    answers; all groups whole."""
    own = subject.samples()
    if subject.grouped and own:
        size = subject.num_generations
        return own[: max(size, most - most % size)]
    samples = own[:most]
    calibration = calibration or subject.once(Calibration)
    for place in list(calibration.answers)[: most // 4 if own else most // 2]:
        samples.append(Case(place, subject.completion(calibration.right_text(place))))
        samples.append(Case(place, subject.completion(calibration.wrong_text(place))))
    if not samples:
        texts = ("", "I don't know.", "The answer is 7.", "<think>\nSeven.\n</think>\n<answer>\n7\n</answer>")
        samples = [
            Case(place, subject.completion(text)) for place in range(min(len(subject.rows), 8)) for text in texts
        ]
    return samples


def spread(rows: Sequence[Item], most: int) -> list[Item]:
    """Returns at most `most` rows, spread over the whole length."""
    if len(rows) <= most:
        return list(rows)
    return [rows[place * len(rows) // most] for place in range(most)]


def above(right: Score, wrong: Score, noise: float = 0.0) -> bool:
    """Returns whether the first is a number that the second does not reach, by more than noise."""
    if not right.ok or right.value is None:
        return False
    if not wrong.ok or wrong.value is None:
        return right.value > 0
    return right.value - wrong.value > 3 * noise


def _apart(first: tuple[Score, Score], second: tuple[Score, Score]) -> float:
    pairs = [(one.value, other.value) for one, other in zip(first, second, strict=True)]
    return max((abs(one - other) for one, other in pairs if one is not None and other is not None), default=0.0)


def _best(forms: tuple[Form, ...], trials: dict[str, dict[int, tuple[Score, Score]]]) -> Form | None:
    """The form in which most references score, then that with the highest scores."""

    def rank(form: Form) -> tuple[int, float]:
        pairs = trials[form.name].values()
        values = [right.value for right, _ in pairs if right.ok and right.value is not None]
        telling = sum(above(right, wrong) for right, wrong in pairs)
        return telling, round(fmean(values), 6) if values else float("-inf")

    best = max(forms, key=rank)  # the first of equal ones
    return best if rank(best)[0] else None
