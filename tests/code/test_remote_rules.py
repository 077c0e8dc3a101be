"""The verdicts on a sandbox's answers are those of the rules here, for whatever values come."""

from __future__ import annotations

import json
import math
from collections import deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from guerdon import Dispatcher, SandboxFusion, code_reward
from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import encode
from guerdon.rewards.code.remote.judge_thread import OutputJudge
from guerdon.rewards.code.remote.texts import CaseTexts, cases_of
from guerdon.rewards.code.trusted.case_judge import CaseJudge
from guerdon.rewards.code.trusted.cases import CallCase, parse_cases
from guerdon.rewards.code.trusted.compare import Compare, values_match
from guerdon.rewards.code.trusted.judge_state import JudgeState
from guerdon.rewards.code.trusted.row_texts import Columns
from guerdon.rewards.code.trusted.sandbox_output import CaseRun, SandboxRun, fault_of_run
from guerdon.rewards.code.zygote.zygote_process import ZygoteLostError
from tests.code.programs import block
from tests.code.sandbox_server import answered
from tests.code.test_encoding import VALUES, repr_of
from tests.http.server import serving

RULES = ["exact", "tokens", "numbers"]
ALIKE = some.recursive(
    some.one_of(
        some.none(), some.booleans(), some.integers(-3, 3), some.integers(), some.floats(), some.text(max_size=3), some.binary(max_size=2),
        some.sampled_from([1.0, -0.0, 1e20, 10**20, 1e-7, 1 + 0j, 1 + 2j, 0.1 + 0.2, 0.3]),
    ),
    lambda inner: some.one_of(
        some.lists(inner, max_size=3),
        some.lists(inner, max_size=3).map(tuple),
        some.dictionaries(some.one_of(some.text(max_size=2), some.integers(0, 2), some.sampled_from([1.0, (1, "a"), None])), inner, max_size=3),
        some.sets(some.integers(0, 3), max_size=3),
        some.frozensets(some.one_of(some.text(max_size=1), some.floats(0, 1)), max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


def returned(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer for a function that returns its argument."""
    nonce, _, request = body["stdin"].partition("\n")
    names = {"nan": math.nan, "inf": math.inf, "set": set, "frozenset": frozenset}
    (value,), _ = eval(json.loads(request)["arguments"], {"__builtins__": {}, **names})
    run = {"status": "Finished", "return_code": 0, "stdout": answered(nonce, value)}
    return {"status": "Success", "run_result": run}


def as_lists(value: Any) -> Any:
    return [as_lists(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("rule", RULES)
def test_values_match_as_here(rule: Compare) -> None:
    @settings(max_examples=10)
    @given(some.lists(some.tuples(ALIKE, ALIKE), min_size=15, max_size=15))
    def check(values: list[tuple[Any, Any]]) -> None:
        pairs = [*values, *(pair for one, _ in values for pair in ((one, one), (one, as_lists(one))))]
        cases = [[{"fn": "f", "args": [value], "expected": expected}] for expected, value in pairs]
        found = dispatcher.score(completions=[block("pass")] * len(cases), cases=cases).rewards.ravel().tolist()
        wanted = [float(values_match(*pair, rule)) for pair in pairs]
        assert found == wanted, [pair for pair, *both in zip(pairs, found, wanted, strict=True) if both[0] != both[1]]

    with serving(returned) as server:
        code = code_reward(remote=SandboxFusion(server.url), compare=rule)
        with Dispatcher([code]) as dispatcher:
            check()


@given(VALUES, VALUES)
@example(None, {"2": 1})
def test_values_of_cases_reach_their_judge_as_they_are(argument: object, expected: object) -> None:
    cases = [{"fn": "f", "args": [argument], "expected": expected}]
    texts = CaseTexts("cases", taken=Columns("cases", None, "entry_point", None))
    _, (text,) = texts.made({"cases": [cases]}, 1)
    (wanted,), (found,) = parse_cases(cases), cases_of(json.loads(str(text))["cases"])
    assert repr_of(list(vars(found).values())) == repr_of(list(vars(wanted).values()))


EQUAL = [
    ("3", "numpy.int64(3)"),
    ("[1, 2]", "numpy.array([1, 2])"),
    ("0.5", "numpy.float32(0.5)"),
    ("True", "numpy.bool_(True)"),
    ("3", "Fraction(3)"),
    ("0.5", "Decimal('0.5')"),
    ("b'x'", "bytearray(b'x')"),
    ("range(0)", "range(5, 5)"),
    ("range(0, 3, 2)", "range(0, 4, 2)"),
    ("range(3, 4)", "range(3, 99, 100)"),
    ("deque([1])", "deque([1])"),
    ("{2: 1}", "{numpy.int64(2): Fraction(1)}"),
]
UNEQUAL = [
    ("[0, 1]", "range(2)"),
    ("range(3)", "range(0, 6, 2)"),
    ("range(1, 3)", "range(2)"),
    ("[1]", "deque([1])"),
    ("1 / 3", "Fraction(1, 3)"),
    ("'nan'", "Decimal('nan')"),
    ("0", "Decimal('inf')"),
    ("3", "range(1000)"),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("expected", "value", "same"), [*((*one, True) for one in EQUAL), *((*one, False) for one in UNEQUAL)]
)
def test_values_of_other_modules_match_as_here(expected: str, value: str, same: bool, rule: Compare) -> None:
    """A program's value reaches workers by `encode`, and is a text in a sandbox."""
    numpy = pytest.importorskip("numpy")
    names = {"numpy": numpy, "Fraction": Fraction, "Decimal": Decimal, "deque": deque}
    wanted, given = eval(expected, names), eval(value, names)
    assert values_match(wanted, decode(encode(given, opaque=lambda value: 0)), rule) is same
    run = SandboxRun("exit", 0, 0.1, answered("nonce", given), "")
    fault = fault_of_run(case_judge(rule), CaseRun(CallCase("f", [], (wanted,)), run, "nonce", 1.0))
    assert (fault == "") is same


def judging(rule: Compare) -> Any:
    """The settings of a reward with this rule."""
    plan: Any = code_reward(remote=SandboxFusion("http://127.0.0.1:9"), compare=rule).spec.http
    return plan.programs.judging


def case_judge(rule: Compare) -> CaseJudge:
    return CaseJudge(judging(rule).rules, JudgeState())


def test_answers_without_a_value_are_faults() -> None:
    case, judge = CallCase("f", [], ([1, 2],)), case_judge("exact")

    def fault(text: str, status: int = 0) -> str:
        return fault_of_run(judge, CaseRun(case, SandboxRun("exit", status, 0.1, text, ""), "n1", 1.0))

    value, listed = (answered("n1", one).partition("value ")[2].strip() for one in ([1, 2], ("map", [1, 2])))
    assert fault(f"noise\nn1 value 7\nn1 value {value}") == ""
    assert fault(f"n1 iterator {listed}") == ""
    assert "expected [1, 2]" in fault(f"n1 iterator {value}")
    assert fault(f"n2 value {value}") == "its process ended with exit status 0"
    assert fault(f"n1 value {value}", status=1) == "its process ended with exit status 1"
    assert fault(f"n1 value {value}", status=-11) == "its process ended by SIGSEGV"
    assert fault('n1 fault "ValueError: no"') == "ValueError: no"
    assert fault("n1 fault 3") == fault("n1 fault oops") == "what it returned is no data"
    assert fault(f"n1 fault {'[' * 200_000}") == "what it returned is no data"
    assert fault("é" * (6 << 20)).startswith("it printed more than")
    for odd in ("7", "%%", f"{value}{value}", "é"):
        assert fault(f"n1 value {odd}").startswith("what it returned is no data: ")


def test_a_judge_that_can_not_be_started_is_no_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.rewards.code.trusted.judge._BOOT", "raise SystemExit(1)")
    run = SandboxRun("exit", 0, 0.1, answered("n", 1), "")
    with pytest.raises(ZygoteLostError, match="could not be started: ended with status 1"):
        OutputJudge(judging("exact")).fault_of(CaseRun(CallCase("f", [], (1,)), run, "n", 1.0), 0.0)


def test_a_value_that_takes_long_to_compare_fails_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.rewards.code.remote.judge_thread._WITHIN_S", 1.0)
    alike = {number * ((1 << 61) - 1) for number in range(30_000)}
    case, right = CallCase("f", [], ({1},)), SandboxRun("exit", 0, 0.1, answered("n", {1}), "")
    judge = OutputJudge(judging("exact"))
    try:
        run = SandboxRun("exit", 0, 0.1, answered("n", alike), "")
        assert (
            judge.fault_of(CaseRun(case, run, "n", 1.0), 0.0)
            == "judging did not end within 1 s with what the program gave"
        )
        assert judge.fault_of(CaseRun(case, right, "n", 1.0), 0.9) == ""
        assert "did not end within 1 s" in judge.fault_of(CaseRun(case, right, "n", 1.0), 1.0)
    finally:
        judge.close()
