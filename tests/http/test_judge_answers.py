"""Answers of judges as models give them, each with the score that a careful reader finds in it, or
`error` where two could differ: `judge_answers.jsonl`. Those with a score in a listed form amid
prose are `listed`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import RegistrationError, parse
from tests.http.scoring import judging, scored
from tests.http.server import question, serving

ROWS = [json.loads(line) for line in Path(__file__).with_name("judge_answers.jsonl").read_text().splitlines()]


def parser(name: str) -> parse.Parse:
    """The parser that a row names: its kind, and its options in any order."""
    kind, *rest = name.split()
    options: dict[str, Any] = {}
    for option in rest:
        if option in ("first", "last"):
            options["which"] = option
        elif option.startswith("label="):
            options["label"] = option.removeprefix("label=")
        elif option == "keep":
            options["reasoning"] = "keep"
        elif "-" in option:
            low, high = map(float, option.split("-"))
            options["range"] = (low, high)
    words = "words" in rest
    if kind == "choice":
        return parse.choice({"good": 1, "fair": 0.5, "bad": 0, "very good": 2} if words else ["A", "B"], **options)
    if kind == "regex" and words:
        return parse.regex(r"(?i)\b(good|bad)\b", {"good": 1, "bad": 0}, **options)
    if kind == "rubric":
        layout: Any = "tags" if "tags" in rest else "json"
        return parse.rubric({"accuracy": 3, "clarity": 1}, layout, range=(0, 10), **options)
    made: Any = {"regex": r"Rating: (\w+)", "tag": "score", "json": "score"}.get(kind)
    return getattr(parse, kind)(*([] if made is None else [made]), **options)  # type: ignore[no-any-return]


def score(row: dict[str, Any]) -> float | str:
    """What the row's parser reads."""
    cut = row["finish"] == "length"
    try:
        found = parser(row["parse"]).read(row["text"], cut=cut, reasoning=row.get("reasoning"))
    except ValueError:
        return "error"
    return "abstains" if found is None else found


def test_each_answer_has_the_score_of_a_careful_reader() -> None:
    wrong = [(row, found) for row in ROWS if not row.get("listed") and (found := score(row)) != row["score"]]
    assert not wrong
    assert len(ROWS) >= 1000


def test_scores_in_a_listed_form_are_read_amid_prose() -> None:
    """A parser that refuses everything would pass the test above."""
    listed = [row for row in ROWS if row.get("listed")]
    found = [score(row) for row in listed]
    unread = [row["text"] for row, read in zip(listed, found, strict=True) if read == "error"]
    wrong = [(row, read) for row, read in zip(listed, found, strict=True) if read not in ("error", row["score"])]
    assert not wrong
    assert len(listed) >= 150
    assert len(unread) <= 0.05 * len(listed), unread


@pytest.mark.fault(
    "a judge's answer can be read in more than one way: several scores, drafts in its reasoning, a number in a name",
    sees="`error` that shows the answer and says why; never a guess",
)
def test_the_same_through_a_judge() -> None:
    """All rows of the table with one outcome from a server, by one judge a parser."""

    def answer(path: str, body: dict[str, Any]) -> Any:
        row = ROWS[int(question(body))]
        message = {"content": row["text"], "reasoning_content": row.get("reasoning")}
        return {"choices": [{"message": message, "finish_reason": row["finish"]}]}

    names = sorted({row["parse"] for row in ROWS})
    with serving(answer) as server:
        for name in names:
            rows = [index for index, row in enumerate(ROWS) if row["parse"] == name and not row.get("listed")]
            if not rows:
                continue
            one = judging(server.url, prompt="{row}", parse=parser(name), retries=0)
            result = scored(one, ["x"] * len(rows), row=rows)
            given = [ROWS[index]["score"] for index in rows]
            wanted = [score if isinstance(score, (int, float)) else np.nan for score in given]
            np.testing.assert_allclose(result.rewards.ravel(), wanted, err_msg=name)
            failed = {failure.sample for failure in result.failures()}
            assert failed == {sample for sample, score in enumerate(given) if score == "error"}, name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: parse.number("best"), "which='best'.*expected None, 'first' or 'last'"),  # type: ignore[arg-type]
        (lambda: parse.number(label=""), "label=''"),
        (lambda: parse.number(range=(10, 0)), "range=.*the lowest and the highest"),
        (lambda: parse.number(range=10), "range=10"),  # type: ignore[arg-type]
        (lambda: parse.tag("s", reasoning="drop"), "reasoning='drop'"),  # type: ignore[arg-type]
        (lambda: parse.choice(["A"]), "labels"),
        (lambda: parse.choice(["A", "a"]), "each word once"),
        (lambda: parse.choice("AB"), "labels='AB'"),
        (lambda: parse.rubric([]), "criteria"),
        (lambda: parse.rubric(["a", "a"]), "given once"),
        (lambda: parse.rubric({"a": 0}), "weights above 0"),
        (lambda: parse.rubric(["a"], "xml"), "layout='xml'"),  # type: ignore[arg-type]
        (lambda: parse.logprob("Yes", "No", expected=True), "several tokens that are numbers"),
        (lambda: parse.logprob("1", expected=True), "several tokens that are numbers"),
        (lambda: parse.logprob("1", "5", "10", expected=True), "'10' as several tokens"),
        (lambda: parse.regex("a", 5), "a dict of strings"),  # type: ignore[arg-type]
        (lambda: parse.regex("a", {"a": float("nan")}), "float32 can hold"),
        (lambda: parse.regex("a", {"a": 10**400}), "float32 can hold"),
        (lambda: parse.regex("a", {"Yes": 1, "yes": 0}), "each word once"),
        (lambda: parse.logprob("Yes", "No", " Yes"), "must be given once"),
    ],
)
def test_wrong_options_are_refused(make: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        make()
