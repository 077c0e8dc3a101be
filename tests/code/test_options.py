"""Options that ``code_reward`` takes, and those that it refuses before anything runs."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, RegistrationError, code_reward
from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.remote.texts import CaseTexts, cases_of
from guerdon.rewards.code.trusted.row_texts import Columns
from tests.code.programs import CASES, INCREMENT, block, judged


async def waits(candidate: object, other: object = None) -> bool:
    return True


class Waits:
    async def __call__(self, candidate: object) -> bool:
        return True


@pytest.mark.fault("code reward with a wrong option", sees="RegistrationError that names the option")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cases": 3}, "cases=3: expected the name of a column"),
        ({"check": ""}, "check=''"),
        ({"check": 3}, "check=3"),
        ({"check": lambda: 1}, "first parameter is the candidate"),
        ({"entry_point": None}, "entry_point=None"),
        ({"prelude": 1}, "prelude=1"),
        ({"prelude": "completion"}, "prelude='completion': expected a column of the dataset"),
        ({"check": int}, "check=<class 'int'>: expected a function with named parameters"),
        ({"check": waits}, "expected a plain function: no event loop runs here"),
        ({"check": Waits()}, "expected a plain function"),
        ({"compare": waits}, "expected a plain function"),
        ({"extract": waits}, "expected a plain function"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": 3e6}, r"timeout=3000000.0: expected at most 1e\+06 s"),
        ({"case_timeout": 3e6}, r"case_timeout=3000000.0: expected at most 1e\+06 s"),
        ({"memory_limit": 2**70}, "memory_limit=1180591620717411303424"),
        ({"max_output": 2**70}, "max_output=1180591620717411303424"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"case_timeout": -1}, "case_timeout=-1"),
        ({"memory_limit": "1 MB"}, "memory_limit='1 MB'"),
        ({"memory_limit": None}, "memory_limit=None"),
        ({"max_output": 0}, "max_output=0"),
        ({"compare": "near"}, "compare='near'"),
        ({"score": "most"}, "score='most'"),
        ({"extract": "middle"}, "extract='middle'"),
        ({"modules": "numpy"}, "modules='numpy'"),
        ({"modules": [""]}, "modules="),
        ({"isolation": "some"}, "isolation='some'"),
        ({"name": " "}, "name=' '"),
        ({"retries": -1}, "retries=-1"),
        ({"on_failure": "zero"}, "on_failure='zero'"),
        ({"otherwise": 1.0}, "otherwise=1.0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message.replace("(", r"\(")):
        code_reward(**{"isolation": "none", **options})


@pytest.mark.fault("tests taken from what the model wrote", sees="RegistrationError: a column of the dataset")
@pytest.mark.parametrize("column", ["completion", "completions", "text", "completion_ids", "prompt", "prompts"])
def test_model_output_is_never_run_on_the_trusted_side(column: str) -> None:
    for option in ("check", "prelude", "cases", "entry_point"):
        with pytest.raises(RegistrationError, match="are the trainer's and the model's"):
            code_reward(isolation="none", **{option: column})


def test_no_isolation_is_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "guerdon"):
        code_reward(isolation="none", name="trusted")
        code_reward(isolation="none", name="trusted")
    assert [record.message for record in caplog.records] == [
        'trusted: isolation="none": programs run with the rights of this user, and can do all that it can'
    ] * 2


def test_the_columns_are_those_of_the_options() -> None:
    def check(candidate: object, tests: list[str], seed: int = 3) -> None: ...

    for options, required, optional in (
        ({}, ("completion", "cases"), ("entry_point",)),
        ({"cases": "a", "prelude": "b", "entry_point": "c"}, ("completion", "a", "b"), ("c",)),
        ({"check": "test"}, ("completion", "test"), ("entry_point",)),
        ({"check": check}, ("completion", "tests"), ("seed", "entry_point")),
    ):
        wants = code_reward(isolation="none", **options).spec.wants
        assert (wants.required, wants.optional) == (required, optional)


def test_called_as_a_trainer_calls_it(every: CodeReward) -> None:
    scores = every(
        prompts=["p"] * 2,
        completions=[block(INCREMENT), block("pass")],
        completion_ids=[[1], [2]],
        cases=[CASES, CASES],
        trainer_state=object(),
        log_extra=print,
    )
    assert scores == [1.0, 0.0]
    with pytest.raises(DataError, match="asks for the column 'cases'"):
        every(completions=[""], other=[1])
    with pytest.raises(DataError, match="column 'cases' is a str, not a list"):
        every(completions=[""], cases="[]")


@pytest.mark.fault("code reward called by itself on a row at fault", sees="None for the row, a warning in the log")
def test_rows_at_fault_have_no_score(every: CodeReward, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "guerdon"):
        assert every(completions=[block(INCREMENT)] * 2, cases=[[], CASES]) == [None, 1.0]
    assert "code: sample 0 has no score: column 'cases' is empty" in caplog.text


def test_the_function_as_datasets_name_it(
    all_tested: CodeReward, every: CodeReward, caplog: pytest.LogCaptureFixture
) -> None:
    method = block("class Solution:\n    def twice(self, x):\n        return 2 * x")
    function = block("def twice(x):\n    return 2 * x")
    # LeetCodeDataset's, blanks around it, LiveCodeBench's metadata; what pandas has for none.
    names = ["Solution().twice", " twice ", '{"func_name": "twice"}', float("nan"), None]
    cases = [[{"args": [2], "expected": 4}]] * 3 + [[{"fn": "twice", "args": [2], "expected": 4}]] * 2
    completions = [method, function, method, function, function]
    assert every(completions=completions, cases=cases, entry_point=names) == [1.0] * 5
    with caplog.at_level(logging.WARNING, "guerdon"):
        assert every(completions=[function], cases=cases[:1], entry_point=["twice(x)"]) == [None]
        assert every(completions=[function], cases=cases[:1], entry_point=["{twice"]) == [None]
    assert "'twice(x)' is not the name of a function" in caplog.text
    assert "'{twice' is no name of a function, nor JSON" in caplog.text
    texts = CaseTexts("cases", taken=Columns("cases", None, "entry_point", None))
    _, sent = texts.made({"cases": cases[:4], "entry_point": names[:4]}, 4)
    found = [cases_of(json.loads(str(one))["cases"])[0] for one in sent]
    assert [vars(one)["fn"] for one in found] == ["Solution.twice", *["twice"] * 3]
    test = "\ufeffdef check(candidate):\n    assert candidate(x=2) == 4\n"
    found = all_tested(completions=[method] * 2, test=[test] * 2, starter=[""] * 2, entry_point=names[:1] + names[2:3])
    assert found == [1.0] * 2
    with judged(check=lambda candidate: candidate(2) == 4) as reward:
        assert reward(completions=[method, function], entry_point=names[:2]) == [1.0] * 2


def test_it_pickles_as_its_arguments() -> None:
    with judged(name="sums", score="share", case_timeout=1.5) as reward:
        reward(completions=[block(INCREMENT)], cases=[CASES])
        copy = pickle.loads(pickle.dumps(reward))
    try:
        assert (copy.name, copy.spec.wants, copy.spec.policy) == ("sums", reward.spec.wants, reward.spec.policy)
        assert copy(completions=[block(INCREMENT)], cases=[CASES]) == [1.0]
    finally:
        copy.close()


def test_modules_are_there_before_programs_run() -> None:
    with judged(modules=["fractions", "email.message"]) as reward:
        program = "import sys\nprint('email.message' in sys.modules)"
        assert reward(completions=[block(program)], cases=[[{"stdin": "", "stdout": "True"}]]) == [1.0]


def test_a_module_of_any_name_is_there_and_bounds_no_integers(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (open_folder / "program.py").write_text("import sys\ngetattr(sys, 'set_int_max_str_digits', int)(4300)\n")
    monkeypatch.syspath_prepend(str(open_folder))
    with judged(modules=["program"]) as reward:
        printed = {"stdin": "", "stdout": "5001"}
        script = "import program\nprint(len(str(10 ** 5000)))"
        assert reward(completions=[block(script)], cases=[[printed]]) == [1.0]


@pytest.mark.fault(
    "a module of modules= can't be imported",
    sees='a refusal that names it; with isolation="none" no score, with the ModuleNotFoundError',
)
def test_a_module_that_is_not_there_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RegistrationError, match="modules='no_such_module' can't be imported where programs run"):
        code_reward(modules=["no_such_module"])
    with judged(modules=["no_such_module"], isolation="none") as reward, caplog.at_level(logging.WARNING, "guerdon"):
        assert reward(completions=[block(INCREMENT)], cases=[CASES]) == [None]
    assert "No module named 'no_such_module'" in caplog.text


FORKED = """
import os, threading, time
from guerdon import code_reward

if __name__ == "__main__":
    reward = code_reward(isolation="none", timeout=20)
    slow = "```python\\nimport time\\ntime.sleep(2)\\nprint(1)\\n```"
    cases = [[{"stdin": "", "stdout": "1"}]]
    other = threading.Thread(target=reward, kwargs={"completions": [slow], "cases": cases})
    other.start()
    time.sleep(1)
    if os.fork() == 0:
        print(reward(completions=["```python\\nprint(1)\\n```"], cases=cases), flush=True)
        reward.close()
        os._exit(0)
    os.wait()
    other.join()
    reward.close()
"""


@pytest.mark.fault("a process forks while another of its threads scores programs", sees="nothing: the child scores too")
def test_a_forked_process_scores_while_a_thread_of_its_parent_does() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=100)
    assert run.stdout.strip() == "[1.0]", run.stderr


def test_a_working_folder_that_programs_may_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr/lib")
    with pytest.raises(RegistrationError, match=r"the working folder '/usr/lib.*' lies in '/usr/lib', which programs"):
        code_reward()
    code_reward(isolation="none")
    monkeypatch.chdir("/usr")
    code_reward()
