"""Math answers: nothing that is decided natively disagrees with math-verify, and what isn't
decided is math-verify's own value.

The share decided natively, by kind of answer, is printed by the soak tests (`make stress ARGS=-s`).
"""

from __future__ import annotations

import inspect
import logging
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, StatefulReward, Status, rewards
from guerdon._native import math_decision
from guerdon.errors import DataError, RegistrationError
from guerdon.rewards.math import helper, plain_gold, verify
from tests.rewards.math_pairs import KINDS, pairs, soup
from tests.shared_data import gsm8k_solutions

# What warns in SymPy is not to become an error in math-verify, which would change its answer.
pytestmark = pytest.mark.filterwarnings("ignore")

TABLE = [
    # gold, answer, whether TRL rewards it, whether the native decider knows
    ("18", "\\boxed{18}", 1.0, True),
    ("1,234", "The total is $\\boxed{1234}$.", 1.0, True),
    ("#### 72", "\\[\\boxed{72.0}\\]", 1.0, True),
    ("$\\frac{1}{2}$", "\\boxed{0.5}", 1.0, True),
    ("50%", "\\boxed{\\frac{1}{2}}", 1.0, True),
    ("9", "\\boxed{9\\%}", 1.0, True),
    ("$x=5$", "\\boxed{5}", 1.0, True),
    ("$B$", "\\boxed{\\text{(B)}}", 1.0, True),
    ("$2\\sqrt{3}$", "\\boxed{2\\sqrt{3}}", 1.0, True),
    ("18", "it is 18", 0.0, True),
    ("18", "\\boxed{19}", 0.0, True),
    ("There is no number in it, you see.", "\\boxed{19}", None, True),
    ("$2\\sqrt{3}$", "\\boxed{\\sqrt{12}}", 1.0, False),
    ("$\\frac{1}{3}$", "\\boxed{0.3333333}", 1.0, False),
    ("$1<x<2$", "\\boxed{(1,2)}", 1.0, False),
    ("$(1,2)$", "\\boxed{1<x<2}", 0.0, False),
    ("18", "The answer is $18$.", 1.0, False),
    (
        "18",
        "\\boxed{17}\nor rather, since there is one more of them to count,\n\\boxed{18}",
        0.0,
        False,
    ),  # a set of both, there
]


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    """The worker of plain calls is there until the process ends."""
    yield
    helper.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """math-verify logs what it can't parse."""
    loggers = [logging.getLogger(f"math_verify.{name}") for name in ("parser", "grader")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def disagreements(triples: Iterable[tuple[str, str, str]], question: str) -> tuple[list[Any], dict[str, Counter[str]]]:
    """The decided pairs of which math-verify says something else, and how many of each kind are
    decided."""
    pytest.importorskip("math_verify")
    reward = question == "reward"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    odd = []
    for kind, gold, answer in triples:
        decision = math_decision(gold, answer, reward=reward)
        counts[kind]["left" if decision is None else "decided"] += 1
        if decision is not None:
            expected = verify.score(gold, answer, reward=reward)
            if expected != (None if decision == "no gold" else float(decision)):
                odd.append((kind, gold, answer, decision, expected))
    return odd, counts


@pytest.mark.parametrize("question", ["reward", "equal"])
@pytest.mark.parametrize(
    ("count", "seed"),
    [(5500, 3), pytest.param(400_000, 4, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_generated_pairs_are_decided_as_math_verify_does(question: str, count: int, seed: int) -> None:
    odd, counts = disagreements(pairs(count, seed, question), question)
    for kind, found in counts.items():
        print(f"{question} {kind}: {found['decided'] / found.total():.0%} of {found.total()} decided")
    assert odd == []
    # every kind is decided now and then, or the test says nothing of it
    assert {kind for kind, found in counts.items() if found["decided"]} == set(KINDS)


# Pairs that are seldom generated: each shows an error of one rule.
SELDOM = [
    ("27/4%", r"\boxed{27/4}"),
    (r"\(23/5\ \)", r"The final answer is \boxed{23/5\ }."),
    (r"It \]is 01/04.", r"[ \boxed{01/04} ] is it"),
    ("or = 1538", r"The final answer is \boxed{or = 1538}."),
    (r"So it is $\boxed{\mathrm{th}}$.", r"\boxed{\mathrm{th}}"),
    (r"$ \frac{-11}{100} $", r"The final answer is \boxed{\frac{-1.1}{100}}."),
    (r"$ \frac{16}{3} $", r"The final answer is \boxed{5.333333333333333^{\circ}}."),
    (r"$\frac{3}{0}$", r"\boxed{\frac{3}{0}}"),
    ("$26/0 cm$", r"\boxed{26/0 cm}"),
]


def test_pairs_that_are_seldom_made_are_decided_as_math_verify_does() -> None:
    assert disagreements([("seldom", *pair) for pair in SELDOM], "reward")[0] == []


@pytest.mark.parametrize(("count", "seed"), [(2000, 5), pytest.param(100_000, 6, marks=pytest.mark.soak)])
def test_pieces_in_any_order_are_decided_as_math_verify_does(count: int, seed: int) -> None:
    bowls = list(soup(count, seed))
    for question in ("reward", "equal"):
        triples = [(kind, gold, answer) for asked, kind, gold, answer in bowls if asked == question]
        odd, counts = disagreements(triples, question)
        assert odd == []
        assert sum(count["decided"] for count in counts.values()) > 0.2 * len(triples)


@pytest.mark.soak
@pytest.mark.parametrize("question", ["reward", "equal", "boxed"])
def test_gsm8k_solutions_are_decided_as_math_verify_does(question: str) -> None:
    triples = []
    for row in gsm8k_solutions():
        gold, solution = str(row["reference"]), str(row["completion"])
        begin, _, number = solution.rpartition("A: ")
        answer = f"{begin}The final answer is \\boxed{{{number}}}." if question == "boxed" else solution
        triples.append((question, gold if question == "equal" else gold.rpartition("A: ")[2], answer))
    assert len(triples) == 5276
    odd, counts = disagreements(triples, "equal" if question == "equal" else "reward")
    decided = counts[question]["decided"]
    print(f"{question}: {decided} of {len(triples)} decided")
    assert odd == []
    assert decided > 0.97 * len(triples)


def test_letters_are_decided_as_math_verify_does() -> None:
    """All pairs of letters, as a choice is written."""
    letters = "ABCDEeiIxX"
    forms = ["{}", "({})", "\\text{{{}}}", "\\textbf{{({})}}"]
    triples = [
        ("letter", f"${gold}$", f"\\boxed{{{form.format(answer)}}}")
        for gold, answer, form in product(letters, letters, forms)
    ]
    assert disagreements(triples, "reward")[0] == []


@pytest.mark.parametrize(("gold", "answer", "value", "known"), TABLE)
def test_the_table(gold: str, answer: str, value: float | None, known: bool) -> None:
    decision = math_decision(gold, answer, reward=True)
    assert (decision is not None) == known
    if known:
        assert (None if decision == "no gold" else float(decision is True)) == value


def test_values_are_those_of_trl() -> None:
    """A dispatcher and a plain call give them, natively decided or not."""
    trl = pytest.importorskip("trl.rewards")
    pytest.importorskip("math_verify")
    golds, answers, values, _ = (list(column) for column in zip(*TABLE, strict=True))
    original = trl.accuracy_reward([[{"content": answer}] for answer in answers], golds)
    assert original == values
    reward = rewards.math_reward()
    assert reward(completions=answers, solution=golds) == values
    with Dispatcher([reward]) as dispatcher:
        result = dispatcher.score(completions=answers, solution=golds)
    expected = [np.nan if value is None else value for value in values]
    np.testing.assert_array_equal(result.rewards.ravel(), np.float32(expected))
    abstained = [status == Status.ABSTAINED for status in result.status.ravel()]
    assert abstained == [value is None for value in values]


WORDS = [
    # gold, answer, value
    ("C", "\\boxed{C}", 1.0),
    ("C", "\\boxed{D}", 0.0),
    ("(C)", "\\boxed{\\text{c}}", 1.0),
    ("C", "\\boxed{(C) Paris}", 1.0),
    ("C", "\\boxed{Cat}", 0.0),
    ("C", "C", 0.0),
    ("C", "\\boxed{C", 0.0),
    ("Yes", "So \\boxed{\\textbf{Yes}}.", 1.0),
    ("Yes", "\\boxed{No}", 0.0),
    ("Yes", "\\boxed{(Yes,}", 0.0),
    ("Yes", "\\boxed{1Yes)}", 0.0),
    ("\\text{Yes}", "\\boxed{yes}", 1.0),
    ("New York", "\\boxed{\\text{New York}}", 1.0),
    ("True", "\\boxed{True}", 1.0),
    ("True", "\\boxed{1}", 0.0),
    ("+7", "\\boxed{7}", 1.0),
    ("+7", "\\boxed{-7}", 0.0),
    ("$+7$", "\\boxed{+7}", 1.0),
]


@pytest.mark.parametrize(("gold", "answer", "value"), WORDS)
def test_letters_words_and_signed_numbers_are_gold_answers(gold: str, answer: str, value: float) -> None:
    pytest.importorskip("math_verify")
    assert rewards.math_reward()(completions=[answer], solution=[gold]) == [value]
    assert verify.accuracy(gold, answer, strict=False) == value
    if (value and "\\" not in gold) or gold == "Yes":
        assert rewards.math_equal(gold, answer) == bool(value)


def test_gold_answers_that_can_not_be_read_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    plain_gold._warned.clear()
    gold = ["There is no number in it, you see."] * 3
    assert rewards.math_reward("reference")(completions=["\\boxed{1}"] * 3, reference=gold) == [None] * 3
    assert caplog.text.count("column 'reference'") == 1


def test_another_column_by_name_and_none_abstains() -> None:
    reward = rewards.math_reward("ground_truth", name="right")
    golds = ["4", None, np.nan, np.float32("nan"), np.str_("4")]
    assert reward(completions=["\\boxed{4}"] * 5, ground_truth=golds) == [1.0, None, None, None, 1.0]
    copy = pickle.loads(pickle.dumps(reward))
    assert (copy.name, repr(copy)) == ("right", repr(reward))
    with Dispatcher([copy], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["\\boxed{4}"] * 4, ground_truth=["4", None, 4, np.nan])
    assert result.status.ravel().tolist() == [Status.OK, Status.ABSTAINED, Status.ERROR, Status.ABSTAINED]
    assert "the gold answer is a int" in result.failures()[0].reason


def test_worker_callable_names_its_column() -> None:
    """`guerdon profile` reads its signature."""
    target = rewards.math_reward("answer").spec.target
    assert list(inspect.signature(target).parameters) == ["text", "answer"]  # type: ignore[arg-type]
    assert target("\\boxed{5}", answer="5") == target("\\boxed{5}", "5") == 1.0  # type: ignore[operator]
    assert rewards.math_reward("gold answer")(completions=["\\boxed{5}"], **{"gold answer": ["5"]}) == [1.0]


def test_math_equal_asks_for_what_it_does_not_know() -> None:
    pytest.importorskip("math_verify")
    assert rewards.math_equal("1/2", "0.5")
    assert not rewards.math_equal("18", "none")
    assert rewards.math_equal("$1<x<2$", "$(1,2)$")
    assert not rewards.math_equal("$(1,2)$", "$1<x<2$")


def test_strict_is_right_where_math_verify_is_lax() -> None:
    pytest.importorskip("math_verify")
    for gold, answer in [("9", "9%"), ("$\\frac{1}{3}$", "0.3333333"), ("$A$", "$a$")]:
        assert rewards.math_equal(gold, answer)
        assert not rewards.math_equal(gold, answer, strict=True)
    strict = rewards.math_reward(strict=True)
    assert strict(completions=["\\boxed{9\\%}", "\\boxed{9}"], solution=["9", "9"]) == [0.0, 1.0]


@pytest.mark.fault("math-verify is not installed", sees="an error that names it, only where a pair needs it")
def test_a_missing_package_matters_only_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verify, "find_spec", lambda name: None)
    verify._loaded.cache_clear()
    rewards.math_reward()
    assert "pip install 'math-verify" in caplog.text
    assert rewards.math_equal("18", "18.0")
    with pytest.raises(ImportError, match=r"pip install 'math-verify"):
        rewards.math_equal("$2\\sqrt{3}$", "$\\sqrt{12}$")
    with pytest.raises(ImportError, match=r"pip install 'math-verify"):
        verify.MathSample("solution", strict=False)("\\boxed{\\sqrt{12}}", "$2\\sqrt{3}$")


@pytest.fixture
def slow_math_verify(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker of plain calls that answers nothing, and loads for longer than a pair may take."""
    monkeypatch.setattr(helper, "_Pairs", _Forever)
    monkeypatch.setattr(helper, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(helper, "_dispatchers", {})
    monkeypatch.setattr(helper, "missing", lambda: None)
    yield
    helper.close()


@pytest.mark.usefixtures("slow_math_verify")
def test_a_pair_that_takes_too_long_counts_as_different(caplog: pytest.LogCaptureFixture) -> None:
    assert not rewards.math_equal("$2\\sqrt{3}$", "$\\sqrt{12}$")
    assert "counts as different" in caplog.text
    assert helper.ask([("quick", "x")], reward=False) == [1.0], "what loads for longer has its time"


@pytest.mark.usefixtures("slow_math_verify")
@pytest.mark.fault("math-verify does not end, in a plain call", sees="no reward (`None`) for that sample, logged")
def test_a_sample_that_takes_too_long_has_no_reward(caplog: pytest.LogCaptureFixture) -> None:
    boxed = ["\\boxed{\\sqrt{12}}", "\\boxed{18}"]
    assert rewards.math_reward()(completions=boxed, solution=["$2\\sqrt{3}$", "18"]) == [None, 1.0]
    assert "so that there is no reward" in caplog.text


# Boxes that are deep, by whether math-verify finds out at once that it can't parse them.
DEEP = {
    True: ["({}1", "({}1)", " ({}1 ", "({}1+2"],
    False: ["({}", "1({}", "[{}"],
}


def _deep(form: str, levels: int) -> str:
    return f"The answer is \\boxed{{{form.replace('{}', form[form.index('{') - 1] * levels)}}}."


@pytest.mark.fault(
    "a box of hundreds of parentheses, which math-verify parses for minutes",
    sees="0 at once, as math-verify says when its time is over",
)
def test_math_verify_does_not_get_unparsable_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl.rewards")
    pytest.importorskip("math_verify")
    answers = [_deep(form, 250) for form in DEEP[True]]
    assert trl.accuracy_reward([[{"content": answer}] for answer in answers], ["1"] * len(answers)) == [0.0] * len(
        answers
    )
    parse, compare, box = verify._loaded()
    asked: list[str] = []

    def noted(text: str, **options: object) -> object:
        asked.append(text)
        return parse(text, **options)

    monkeypatch.setattr(verify, "_loaded", lambda: (noted, compare, box))
    everything = [*answers, *(_deep(form, 250) for form in DEEP[False])]
    assert [verify.score("$1$", answer, reward=True) for answer in everything] == [0.0] * len(everything)
    assert set(asked) == {"$1$"}
    others = [_deep("({}1", 150), "(" * 250 + "\\boxed{1}"]
    assert [verify.score("$1$", answer, reward=True) for answer in others] == [0.0, 1.0]
    assert asked[-1] == others[-1]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_deep_boxes_equal_no_number_to_math_verify() -> None:
    trl = pytest.importorskip("trl.rewards")
    pytest.importorskip("math_verify")
    forms = [*DEEP[True], *DEEP[False], "1+({}1", "1*({}1", "({}1)/2", "1.({}", "1,({}"]
    closed = ["1".join(("(" * 200, ")" * 200)), "[" * 200 + "1" + "]" * 200, "(" * 200 + "1" + ")+0" * 200]
    answers = [_deep(form, 200) for form in forms] + [f"\\boxed{{{box}}}" for box in closed]
    values = trl.accuracy_reward([[{"content": answer}] for answer in answers], ["1"] * len(answers))
    assert values == [0.0] * len(answers)


class _Forever(StatefulReward):
    def setup(self) -> None:
        time.sleep(0.5)

    def score(self, text: str, gold: str, as_reward: bool) -> float | None:
        if gold == "quick":
            return 1.0
        while True:
            pass


def test_odd_options_are_refused() -> None:
    for options in [{"column": ""}, {"nothing": 1}, {"timeout": -1}]:
        with pytest.raises(RegistrationError):
            rewards.math_reward(**options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="ground_truth"):
        rewards.math_reward("ground_truth")(completions=["a"], solution=["1"])
    with pytest.raises(DataError, match="sample 0"):
        rewards.math_reward()(completions=["a"], solution=[1])
