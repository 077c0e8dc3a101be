"""Rewards that come with Guerdon, profiled: advice that their user can take."""

from __future__ import annotations

from typing import Any

import pytest

from guerdon import code_reward, reward, rewards
from guerdon._functions.build import spec_of
from guerdon.profile import profile
from guerdon.profile.advice import advise
from guerdon.profile.calibration import Calibration
from guerdon.profile.checks import survival
from guerdon.profile.measurement import Measurement
from guerdon.profile.subject import Case, Score, Subject
from guerdon.results.status import Status

PROGRAM = "```python\nprint(int(input()) + 1)\n```"


def coded(case: dict[str, Any], column: str = "tests") -> list[dict[str, Any]]:
    return [{"prompt": f"p{row}", "completion": PROGRAM, "solution_code": "x", column: [case]} for row in range(4)]


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({"in": "1", "out": "2"}, "case 0 has in, out: expected"),
        ({"stdin": 1, "stdout": "2"}, 'case 0: stdin is an int (1), expected a string: "1"'),
    ],
)
def test_rows_at_fault_are_the_only_finding(case: dict[str, Any], says: str) -> None:
    coder = code_reward(cases="tests", isolation="none", timeout=5)
    profiled = profile([coder], [*coded(case), {**coded(case)[0], "completion": "no program"}], time_limit=300.0)
    assert profiled.step is None, "one row that is no program's says nothing of a step"
    found = profiled.functions["code"]
    (finding,) = found.findings
    assert (finding.check, finding.severity) == ("data", "error")
    assert finding.message.startswith(f"row 0: mend the column 'tests': {says}")
    assert "4 of 5 rows are at fault" in finding.message
    assert [example.row for example in finding.examples] == [0, 1, 2, 3]
    assert found.advice is None


def test_rows_at_fault_of_other_rewards() -> None:
    rows = [{"prompt": "p", "completion": "1", "solution": row, "schema": {"type": "text"}} for row in range(3)]
    for item, column in ((rewards.math_reward(), "solution"), (rewards.json_schema(), "schema")):
        (finding,) = profile([item], rows, time_limit=300.0).functions[item.name].findings
        assert (finding.check, f"mend the column '{column}'" in finding.message) == ("data", True)


def test_only_what_the_engine_says_is_a_flood() -> None:
    """A reason that has the word in it is an error like any other."""
    reasons = [
        ("exception", 'DataError: case 0 has in, out: expected {"input", "output"}'),
        ("exception", "ValueError: printed 12 bytes, more than its max_output of 1 KB allows"),
        ("output", "printed 12 bytes, more than its max_output of 10 bytes allows"),
        ("memory", "MemoryError (memory_limit of 100 MB)"),
        ("memory", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB (memory_limit of 100 MB)"),
        ("exception", "ValueError: no MemoryError"),
    ]
    subject = Subject(reward(lambda text: 1.0, name="f"), [{"completion": "a"}] * 3)
    for check, reason in reasons:
        (finding,) = survival.failures(subject, [(Case(1, "b"), Score(None, Status.ERROR, reason), "")], 3)
        assert (finding.check, finding.severity) == (check, "warning" if check == "output" else "error"), reason


def test_advice_is_a_call_of_the_factory() -> None:
    found = Measurement("sample", seconds=[1e-4] * 8, cpu_s=0.9)
    math = advise(spec_of(rewards.math_reward()), found, 1e-4)
    assert (math.decorator, math.lane) == ("math_reward(timeout=10)", "process")
    assert math.timeout_reason == "the slowest call took 0.1 ms, but others may take 10 s"
    exact = advise(spec_of(rewards.exact_match("gold")), found, 1e-4)
    assert exact.decorator == 'exact_match(column="gold", timeout=1)'
    code = advise(spec_of(code_reward(isolation="none", timeout=10)), found, 1e-4)
    assert (code.timeout, code.decorator) == (112.0, None)
    assert code.timeout_reason.startswith("its own: 10 s for the cases of a program (timeout=10), and 102 s for ")


def test_no_advice_speaks_of_the_functions_code() -> None:
    ifeval = rewards.ifeval()
    row = {"prompt": "p", "completion": "a", "instruction_id_list": ["no:such"], "kwargs": [{}]}
    with Subject(ifeval, [row] * 2) as subject:
        (finding,) = [each for each in survival.CHECK.run(subject) if each.check == "exception"]
    assert "Catch" not in finding.message
    assert "catch" not in finding.message
    assert ".." not in finding.message


def test_function_that_raises_on_some_completions_is_told_what_that_costs() -> None:
    @reward
    def picky(completion: str, answer: str) -> float:
        if completion != completion.strip() or completion.upper() == completion != answer:
            raise ImportError("no such package.")
        return float(completion.endswith(answer))

    rows = [{"prompt": f"p{n}", "answer": str(n)} for n in range(10, 18)]
    with Subject(picky, rows) as subject:
        assert subject.once(Calibration).usable
        (raised,) = [each for each in survival.CHECK.run(subject) if each.check == "exception"]
    assert "no such package. Each costs" in raised.message
    assert "had better stay a failure" in raised.message
