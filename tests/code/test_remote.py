"""Code rewards whose programs run in a sandbox elsewhere: the same scores as here."""

from __future__ import annotations

import math
import pickle
import re
import shutil
import threading
import time
from collections import deque
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import (
    Dispatcher,
    Limit,
    RegistrationError,
    SandboxFusion,
    Server,
    Status,
    code_reward,
    read_journal,
    reward,
)
from tests.code.programs import CASES, INCREMENT, block, call, judged, judgement
from tests.code.sandbox_server import remote, sandbox, scored
from tests.monitor import reading

fault = pytest.mark.fault
FUNCTIONS = """
import sys
def add(a, b=1):
    print("noise")
    return a + b
class Solution:
    def pair(self, x):
        return (x, [None, {"a b": 0.5, 1: {2}}])
class Odd:
    __eq__ = lambda self, other: True
def odd(): return Odd()
def leave(): sys.exit(0)
def deep():
    found = []
    for _ in range(200): found = [found]
    return found
"""


def test_scores_and_reasons_are_those_of_programs_here() -> None:
    programs = [
        INCREMENT,
        "pass",
        "while True: pass",
        "import os; os._exit(0)",
        "1/0",
        "print(2)",
        "print(3",
        "input(); print(2, end='')",
    ]
    # Of each case, as what one leaves to the next differs: here it counts what a processor did.
    options: dict[str, Any] = {"score": "share", "timeout": 3.0, "case_timeout": 1.0}
    with sandbox() as server, judged(isolation="none", **options) as here:
        result = scored(remote(server, **options), programs, cases=[CASES] * len(programs))
        found = [judgement(here, program, cases=CASES) for program in programs]
    assert result.rewards.ravel().tolist() == [one.score for one in found]
    assert (result.status == Status.OK).all()
    assert result.extra["code/passed"] == [one.passed for one in found]
    # The place in a program's text is not in what an interpreter prints.
    place = r" ?\([^()]*line \d+[^()]*\)"
    assert result.extra["code/reason"] == [re.sub(place, "", one.reason) for one in found]
    assert set(result.extra["code/isolation"]) == {"remote"}
    sent = server.bodies[0]
    assert sent["language"] == "python"
    assert sent["memory_limit_MB"] == 512
    assert 0 < sent["run_timeout"] <= 3
    assert not any(case["stdout"] in body["stdin"] for body in server.bodies for case in CASES), (
        "expected values stay here"
    )


def test_functions_are_called_as_here() -> None:
    cases = [
        call("add", 2, expected=3),
        {"fn": "add", "args": [float("inf")], "kwargs": {"b": 1}, "expected": float("inf")},
        call("pair", (1,), expected=[[1], [None, {"a b": 0.5, 1: {2}}]]),
        call("add", 2, expected=4),
        call("add", expected=1),
        call("gone", expected=1),
        call("odd", expected=None),
        call("deep", expected=None),
        call("leave", expected=None),
    ]
    broken = "raise ValueError('no')"
    with sandbox() as server, judged(isolation="none", score="share") as here:
        result = scored(remote(server, score="share"), [FUNCTIONS, broken], cases=[cases] * 2)
        found = judgement(here, FUNCTIONS, cases=cases)
    assert (result.extra["code/passed"][0], found.passed) == (3, 3)
    reason = result.extra["code/reason"][0]
    assert (
        "case 3: it returned 3, expected 4; case 4: TypeError: add() missing 1 required positional argument" in reason
    )
    assert "case 5: the program defines no 'gone'; case 6: it returned <Odd object>, expected None" in reason
    assert "case 7: what it returned is no data: the value is nested" in reason
    assert "; and 1 more" in reason
    assert "case 0: the program could not be loaded: ValueError: no" in result.extra["code/reason"][1]
    assert not any("expected" in body["stdin"] for body in server.bodies)
    assert len({body["stdin"][:32] for body in server.bodies}) == len(server.bodies), "a nonce a case"


def test_all_must_pass_unless_the_share_counts() -> None:
    with sandbox() as server:
        result = scored(remote(server), [INCREMENT, "print(2)", "print(0)"], cases=[CASES] * 3)
        assert result.rewards.ravel().tolist() == [1.0, 0.0, 0.0]
        assert len(server.bodies) == 2 + 2 + 1, "the first failed case ends it"
        assert result.extra["code/reason"][2] == "case 0: it printed '0\\n', expected '2\\n'"


def test_columns_and_extraction_are_those_of_other_code_rewards() -> None:
    starter, body = 'def half(x):\n    """Half."""\n', "    return x // 2\n"
    with sandbox() as server:
        whole = remote(server, prelude="starter", extract="whole")
        with Dispatcher([whole]) as dispatcher:
            result = dispatcher.score(
                completions=[body, ""],
                starter=[starter] * 2,
                entry_point=["half"] * 2,
                cases=['[{"args": [4], "expected": 2}]'] * 2,
            )
        assert result.rewards.ravel().tolist() == [1.0, 0.0]
        assert result.extra["code/reason"][1] == "the completion is empty"
        turns = [[{"role": "assistant", "content": block("print(5)")}]]
        with Dispatcher([remote(server)]) as dispatcher:
            result = dispatcher.score(completions=turns, cases=[{"inputs": ["", ""], "outputs": ["5", "5"]}])
        assert result.rewards.item() == 1.0


@pytest.mark.skipif(shutil.which("g++") is None, reason="the server needs g++")
def test_languages_are_the_sandboxs() -> None:
    good = "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << x + 1; }"
    with sandbox() as server:
        code = remote(server, language="cpp", memory_limit="64MiB")
        with Dispatcher([code]) as dispatcher:
            result = dispatcher.score(
                completions=[block(good, "cpp"), block("int main() { return x; }", "c++"), block(INCREMENT)],
                cases=[CASES] * 3,
            )
            called = dispatcher.score(completions=[block(good, "cpp")], cases=[[call("f", expected=1)]])
        assert result.rewards.ravel().tolist() == [1.0, 0.0, 0.0]
        assert re.match("it does not compile: .*error", result.extra["code/reason"][1])
        assert "cases that call functions are for Python" in called.failures()[0].reason
        with Dispatcher([remote(server, language="cobol")]) as dispatcher:
            result = dispatcher.score(completions=[block("x", "cobol")], cases=[CASES])
        assert "422" in result.failures()[0].reason
        assert "'python' or 'cpp'" in result.failures()[0].reason
        assert np.isnan(result.rewards).all()


@fault("a row without cases, with a sandbox", sees="NaN with a reason, and no request; its neighbours have scores")
def test_faults_of_others_are_nan() -> None:
    rows: list[Any] = [
        CASES,
        [],
        "{",
        [{"stdin": "\ud800", "stdout": ""}],
        [call("f", object(), expected=1)],
        [call("f", 1, expected=object())],
    ]
    with sandbox() as server:
        result = scored(remote(server), [INCREMENT] * len(rows), cases=rows)
        assert len(server.bodies) == 2
    assert result.rewards.ravel()[0] == 1.0
    assert np.isnan(result.rewards.ravel()[1:]).all()
    reasons = [failure.reason for failure in result.failures()]
    assert all(reason.startswith("DataError: ") for reason in reasons)
    assert "column 'cases' is empty" in reasons[0]
    assert "half a surrogate" in reasons[2]
    assert "case 0 can't be sent" in reasons[3]


def test_arguments_and_values_of_all_kinds_cross_as_here() -> None:
    program = (
        "from datetime import timedelta\nfrom fractions import Fraction\ntext = repr\n"
        "def count(n):\n    yield from range(n)\ndef next_day(day): return day + timedelta(1)\ndef digits(n): return len(str(10**n))\n"
        "def f(x, kind):\n    return [x, Fraction(4, 2)] if kind else bytearray(b'x')"
    )
    given = [deque([1]), range(3), {1: (2, None)}, {1.5}, b"x", 2j, math.inf]
    cases = [*(call("f", one, True, expected=[one, 2]) for one in given), call("f", 0, False, expected=b"x")]
    inf, nan = math.inf, math.nan
    values = [complex(0, inf), complex(nan, -inf), complex(-inf, nan), -inf, {1}, frozenset({(1, "a")}), set(), b"\x00"]
    cases += [call("text", value, expected=repr(value)) for value in values]
    cases += [call("count", 3, expected=[0, 1, 2]), call("next_day", date(2027, 12, 31), expected=date(2028, 1, 1))]
    cases += [call("digits", 5000, expected=5001)]
    with sandbox() as server:
        result = scored(remote(server), [program], cases=[cases])
    assert (result.rewards.item(), result.extra["code/reason"]) == (1.0, [""])


def test_many_programs_are_under_way_at_once() -> None:
    most, now, lock = [0], [0], threading.Lock()

    def counted(number: int, body: dict[str, Any]) -> Any:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return {"status": "Success", "run_result": {"status": "Finished", "return_code": 0, "stdout": "2"}}

    with sandbox(counted) as server:
        code = remote(server, limit=Limit(concurrency=8))
        result = scored(code, [f"# {number}" for number in range(40)], cases=[CASES[:1]] * 40)
    assert result.rewards.ravel().tolist() == [1.0] * 40
    assert most[0] == 8


def test_gates_pickles_and_caches(tmp_path: Path) -> None:
    with sandbox() as server:
        code = pickle.loads(
            pickle.dumps(remote(server, cache=tmp_path / "kept", run_if={"long": "> 0"}, otherwise=-1.0))
        )
        long = reward(lambda text: float("print" in text), name="long", lane="thread")
        for _ in range(2):
            with Dispatcher([long, code], max_failure_rate=1.0) as dispatcher:
                result = dispatcher.score(completions=[block(INCREMENT), block("pass")], cases=[CASES] * 2)
            assert result.rewards[..., 1].ravel().tolist() == [1.0, -1.0]
        assert len(server.bodies) == 2, "the second time nobody is asked"


def test_streams_and_whole_addresses(tmp_path: Path) -> None:
    with sandbox() as server:
        code = remote(f"{server.url}/run_code")
        with Dispatcher([code], journal=tmp_path, metrics_port=0) as dispatcher:
            batch = dispatcher.stream(num_generations=2)
            batch.add(completions=[block(INCREMENT), "no program"], cases=[CASES] * 2)
            batch.add(completions=[block("print(0)"), block(INCREMENT)], cases=[CASES] * 2, entry_point=["f"] * 2)
            batch.finish()
            result = batch.result(timeout=60)
            counted = reading.series(reading.families(reading.text(dispatcher)))
    assert result.rewards.ravel().tolist() == [1.0, 0.0, 0.0, 1.0]
    of_function = frozenset({("function", "code"), ("rank", "0")})
    assert counted["guerdon_judge_requests_total", of_function] == len(server.bodies) == 5
    assert not any(name.startswith("guerdon_judge_tokens") for name, _ in counted)
    assert sorted(read_journal(tmp_path)["reward"].to_pylist()) == [0.0, 0.0, 1.0, 1.0]


def test_identical_programs_run_once() -> None:
    with sandbox(lambda *_: time.sleep(0.2)) as server:
        result = scored(remote(server, pure=True), [INCREMENT] * 4, cases=[CASES] * 4)
    assert result.rewards.ravel().tolist() == [1.0] * 4
    assert len(server.bodies) == 2


FORGERS = {
    "patched comparisons": "import builtins\nbuiltins.isinstance = lambda *_: True\ndef f(x): return 3",
    "patched json": "import json\njson.dumps = lambda *_, **__: 'nan'\ndef f(x): return 'x'",
    "every number at once": "class N(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\n    __str__ = lambda _: '4'\ndef f(x): return N(3)",
    "a forged line": "import os\nfor fd in range(3, 9):\n    try: os.write(fd, b'value 4\\n')\n    except OSError: pass\ndef f(x): os._exit(0)",
    "an early exit": "import os\nos._exit(0)",
    "a raised exit": "def f(x): raise SystemExit(0)",
    "a walk over frames": "import sys\ndef f(x):\n    frame = sys._getframe(1)\n    return str({k: v for k, v in frame.f_locals.items() if 'expected' in k})",
}


def test_harmless_forgers_score_nothing() -> None:
    programs = {**FORGERS, "honest": "def f(x): return x + 1"}
    with sandbox() as server:
        cases = [[call("f", 3, expected=4)]] * len(programs)
        result = scored(remote(server), [*programs.values()], cases=cases)
    assert dict(zip(programs, result.rewards.ravel(), strict=True)) == {**dict.fromkeys(FORGERS, 0.0), "honest": 1.0}


def test_only_a_dispatcher_runs_it() -> None:
    code = remote("http://127.0.0.1:9")
    assert repr(code) == "<code reward 'code': http://127.0.0.1:9, timeout 5 s>"
    assert str(code.level) == "remote: whatever the sandbox has"
    with pytest.raises(TypeError, match="only a dispatcher can run it"):
        code(completions=[""], cases=[CASES])
    code.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"remote": "http://x"}, "expected a guerdon.SandboxFusion"),
        ({"remote": SandboxFusion("x")}, "is not an address"),
        ({"remote": SandboxFusion("http://x", wait=-1)}, "wait=-1"),
        ({"remote": SandboxFusion(Server("http://x", headers={"x-odd": "Bearer sk-1234567890abcdef"}))}, "holds a key"),
        (
            {"remote": SandboxFusion(Server("http://x", hedge_after=1.0))},
            "a SandboxFusion's server has no hedge_after=",
        ),
        ({"remote": SandboxFusion("http://x", language="")}, "SandboxFusion(language='')"),
        ({"compare": lambda *_: True}, "compare= is a function"),
        ({"check": "test"}, "give the calls as cases"),
        ({"command": ["node", "{file}"]}, "with remote= the sandbox says how programs run"),
        ({"isolation": "none"}, "isolation='none': with remote="),
        ({"modules": ["numpy"]}, "modules=['numpy']: with remote="),
        ({"language": ""}, "expected the name of a language"),
    ],
)
def test_odd_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        code_reward(**{"remote": SandboxFusion("http://127.0.0.1:9"), **options})
