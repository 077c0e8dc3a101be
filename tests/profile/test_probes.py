"""Probes are data: what a file may hold, and what becomes of its templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, reward
from guerdon.profile import Subject
from guerdon.profile.calibration import Calibration
from guerdon.profile.forms import final_answer
from guerdon.profile.probes import Probe, completion_of, default_probes, load_probes

ROWS = [
    {"prompt": "How many?", "answer": "1,250", "unit": "km"},
    {"prompt": "How much is 7?", "answer": "7"},
    {"prompt": "Where?", "answer": "the Black Forest"},
]


@reward
def exact(completion: str, answer: str) -> float:
    return float(completion == f"<answer>{answer}</answer>")


@pytest.fixture(scope="module")
def calibration() -> Any:
    with Subject(exact, ROWS) as subject:
        yield Calibration(subject)


def filled(template: str, row: int, calibration: Calibration, answer: str | None = None) -> str | None:
    return completion_of(Probe("one", "it", template, answer=answer), row, calibration)


def test_the_packages_probes_ask_for_what_is_promised() -> None:
    ids = {probe.id for probe in default_probes()}
    assert len(ids) == len(default_probes())
    promised = "empty refusal prompt_echo shuffled all_answers negated unterminated right_in_reasoning reasoning_only"
    assert ids >= {*promised.split(), "very_long", "odd_unicode", "right_then_wrong", "thousands", "nan", "power_tower"}
    assert all(probe.do and probe.about for probe in default_probes())


@pytest.mark.parametrize(
    ("template", "answer", "row", "text"),
    [
        ("{final}", None, 0, "1,250"),
        ("{prompt} {unit}", None, 0, "How many? km"),
        ("{form}", "not {final}", 2, "<answer>not the Black Forest</answer>"),
        ("{unterminated}", None, 0, "<answer>1,250"),
        ("{thousands}", None, 0, "1,999"),
        ("{negative}", None, 1, "-7"),
        ("{negative}", None, 2, None),
        ("{half}", None, 2, "the Blac"),
        ("{half}", None, 0, None),
        ("{prompt}", None, 1, None),  # whose last number is the answer
        ("{times:3:ab}{times:2:\\boxed{}", None, 0, "ababab\\boxed{\\boxed{"),
        ("\\boxed{{final}} \\frac{a}", None, 1, "\\boxed{7} \\frac{a}"),
    ],
)
def test_templates(template: str, answer: str | None, row: int, text: str | None, calibration: Calibration) -> None:
    assert filled(template, row, calibration, answer) == text


def test_all_answers_hold_the_right_one_in_the_middle(calibration: Calibration) -> None:
    text = filled("{all}", 0, calibration)
    assert text is not None
    assert "1,250" in text
    assert not text.startswith("1,250")
    assert not text.endswith("1,250")


def test_a_file_adds_probes_and_replaces_those_with_its_ids(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    mine = [{"id": "empty", "about": "nothing", "template": ""}, {"id": "mine", "about": "it", "template": "{final}?"}]
    path.write_text(json.dumps({"version": 1, "probes": mine}))
    probes = {probe.id: probe for probe in load_probes(path)}
    assert len(probes) == len(default_probes()) + 1
    assert probes["empty"].about == "nothing"
    assert probes["mine"].severity == "error"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "are not JSON"),
        ('{"version": 2, "probes": []}', '"version": 1'),
        ('{"version": 1, "probes": [{"id": "a"}]}', "probe 1: expected an object with id, about, template"),
        ("[" * 100_000, "are not JSON"),
        *(
            (json.dumps({"version": 1, "probes": [{"id": "a", "about": "b", "template": "c", **wrong}]}), message)
            for wrong, message in [
                ({"expct": "d"}, "probe 1: expected"),
                ({"severity": "bad"}, "severity is wrong"),
                ({"template": 3}, "text is wrong"),
                ({"needs": None}, "needs is wrong"),
                ({"needs": 5}, "needs is wrong"),
                ({"needs": "strict"}, "needs is wrong"),
                ({"id": ""}, "id is wrong"),
                ({"template": "{times:99999999999:x}"}, "template makes more than 1,000,000 characters"),
                ({"answer": "{times:600000:x}{times:600000:y}"}, "answer makes more than"),
                ({"answer": "{times:" + "9" * 5000 + ":x}"}, "answer makes more than"),
            ]
        ),
        (json.dumps({"version": 1, "probes": [{"id": "a", "about": "b", "template": "c"}] * 2}), "'a' is there twice"),
    ],
)
def test_invalid_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        load_probes(path)
    with pytest.raises(DataError, match="can't be read"):
        load_probes(tmp_path / "no.json")


def test_template_without_the_answer_is_wrong_with_another_rows_columns() -> None:
    rows = [{"prompt": "2 + 2", "answer": "4", "name": "four"}, {"prompt": "2 + 2", "answer": "5", "name": "five"}]
    named = reward(lambda completion, answer: float(completion == {"4": "four", "5": "five"}[answer]), name="named")
    with Subject(named, rows, reference="{name}") as subject:
        calibration = subject.once(Calibration)
        assert (calibration.right_text(0), calibration.wrong_text(0)) == ("four", "five")
        assert (calibration.usable, calibration.form_of(0)) == ([0, 1], None)
    with (
        Subject(named, rows, reference="{prompt}") as subject,
        pytest.raises(DataError, match="the same completion for"),
    ):
        subject.once(Calibration)


@pytest.mark.parametrize(
    ("reference", "options", "row", "right", "form"),
    [
        ("{answer}", {}, {"answer": "So $v_{final} = 3 + 7$.\n#### 10"}, "So $v_{final} = 3 + 7$.\n#### 10", True),
        ("{answer}", {}, {"answer": "So {reference} is 10.\n#### 10"}, "So {reference} is 10.\n#### 10", True),
        ("It is {final}", {"answer": "final"}, {"final": "Long way.\n#### 10"}, "It is 10", True),
        ("{name}", {}, {"answer": "10", "name": "v_{final}"}, "v_{final}", False),
    ],
)
def test_braces_of_the_data_are_no_fields_of_the_template(
    reference: str, options: dict[str, str], row: dict[str, str], right: str, form: bool
) -> None:
    plain = {"prompt": "p", "answer": "5", "name": "v_5", "final": "5"}
    right_is = reward(lambda completion, answer, final: float(completion == right), name="right_is")
    with Subject(right_is, [{**plain, **row}, plain], reference=reference, **options) as subject:
        calibration = subject.once(Calibration)
        assert calibration.right_text(0) == right != calibration.wrong_text(0)
        assert (calibration.form_of(0) is not None) is form


@pytest.mark.parametrize(
    ("reference", "final"),
    [
        (r"It is \boxed{4}, so \boxed{5}, as \boxed asks.", "5"),
        (r"It is \boxed{\frac{1}{2}}, as \boxed, \fbox or \boxedasks.", r"\frac{1}{2}"),
        ("Long way.\n#### 5 km", "5 km"),
        ("<answer>5</answer>", "5"),
        ("$5$", "5"),
    ],
)
def test_a_solution_has_its_last_answer(reference: str, final: str) -> None:
    assert final_answer(reference) == final
