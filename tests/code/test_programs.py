"""Programs run to their end, and reasons name the ends of those that do not."""

from __future__ import annotations

import _thread
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon import DataError
from guerdon.rewards.code.child import child
from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.zygote.zygote_process import ProgramEnd
from tests.code.programs import CASES, INCREMENT, block, call, in_process, judged, judgement


@pytest.fixture(scope="module")
def share() -> Iterator[CodeReward]:
    with judged(score="share", case_timeout=1.0, timeout=20) as reward:
        yield reward


THREADS = """
import threading
go = threading.Event()
threads = [threading.Thread(target=go.wait) for _ in range(32)]
for thread in threads:
    thread.start()
go.set()
print(int(input()) + 1)
"""
LAST_WORDS = """
class Last:
    def __del__(self):
        print(self.value)

last = Last()
last.value = int(input()) + 1
"""


def test_a_module_that_prints_as_it_is_imported_prints_in_no_program() -> None:
    with judged(modules=["this"]) as reward:
        found = judgement(reward, INCREMENT, cases=CASES)
    assert (found.score, found.reason) == (1.0, "")


ALARMED = """
import signal
signal.signal(signal.SIGALRM, lambda *_: print(int(input()) + 1))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
"""
CALLER = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from guerdon import code_reward
print(code_reward()(completions=["```python\\n" + sys.argv[1] + "```"], cases=[[{"stdin": "1\\n", "stdout": "2\\n"}]]))
"""


def test_a_rehearsal_leaves_streams_modules_and_threads_as_they_were() -> None:
    def state() -> list[object]:
        streams = [getattr(sys, f"{mark}{name}{mark}") for name in ("stdin", "stdout", "stderr") for mark in ("", "__")]
        return [
            *map(id, streams),
            threading.stack_size,
            _thread.stack_size,
            *sys.modules.items(),
            len(os.listdir("/proc/self/fd")),
        ]

    gc.collect()  # else it may close a file of an earlier test meanwhile
    before = state()
    child.rehearse()
    assert state() == before


@pytest.mark.fault(
    "the trainer ignores SIGCHLD and holds back SIGALRM", sees="nothing: programs start with no signal held back"
)
def test_signals_of_the_caller_are_not_those_of_programs() -> None:
    run = subprocess.run([sys.executable, "-c", CALLER, ALARMED], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "[1.0]", run.stderr


@pytest.fixture(scope="module")
def unfenced() -> Iterator[CodeReward]:
    with judged(isolation="none") as reward:
        yield reward


@pytest.mark.fault("program is wrong: output, exit status, exception, signal", sees="0.0 with a reason a case")
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print(3)", "case 0: it printed '3\\n', expected '2\\n'"),
        ("pass", "it printed ''"),
        ("print(2); raise SystemExit(3)", "exit status 3"),
        ("import os; print(2, flush=True); os._exit(7)", "exit status 7"),
        ("print(2); raise SystemExit('no')", "exit status 1: no"),
        ("x = [\nprint(2)\n1/0", "exit status 1: SyntaxError"),
        ("print(2)\n1/0", "exit status 1: ZeroDivisionError: division by zero (line 2 of the program)"),
        ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV"),
        ("x = 'a' * (1 << 31)", "MemoryError"),
        ("\0", "exit status 1"),
        ("raise KeyboardInterrupt", "exit status 1: KeyboardInterrupt"),
        ("import sys; sys.stdout.close()", "it printed ''"),
        ("input(); input()", "EOFError"),
        (r"import sys; sys.stdout.buffer.write(b'\xff')", r"it printed '\udcff', expected '2\n'"),
    ],
)
def test_a_wrong_program_scores_zero_with_a_reason(every: CodeReward, program: str, reason: str) -> None:
    found = judgement(every, program, cases=CASES)
    assert found.score == 0.0
    assert found.passed == 0
    assert reason in found.reason


@pytest.mark.parametrize(
    "program",
    [
        INCREMENT,
        THREADS,
        LAST_WORDS,
        "print(int(input()) + 1)\nraise SystemExit(0)",
        "import sys\nsys.stdout.write(str(int(sys.stdin.readline()) + 1))",
        "import atexit\nn = int(input())\natexit.register(lambda: print(n + 1))",
        "import threading\nthreading.Thread(target=lambda: print(int(input()) + 1)).start()",
        "if __name__ == '__main__':\n    print(int(input()) + 1)",
        "import os\nn = int(os.read(0, 99))\nos.write(1, b'%d' % (n + 1))",
        "import sys\nsys.setrecursionlimit(10**6)\nf = lambda n: n and 1 + f(n - 1)\nf(20000)\nprint(int(input()) + 1)",
        "from __future__ import annotations\nprint(int(input()) + 1)",
        "import sys\nprint('log', file=sys.stderr)\nprint(int(open(0).read()) + 1)",
        "def f():\n    global n\n    n = int(input())\nf()\nprint(n + 1)",
        "# -*- coding: utf-8 -*-\nx = 'é'\nprint(int(input()) + 1)",
        "out = open(1, 'w')\nout.write(str(int(input()) + 1))",
        "import sys\nn = int(input())\nsys.stdout = None\nsys.__stdout__.write(str(n + 1))",
    ],
)
def test_right_programs_score_one(every: CodeReward, program: str) -> None:
    found = judgement(every, program, cases=CASES)
    assert (found.score, found.passed, found.cases, found.reason) == (1.0, 2, 2, "")


FALLIBLE = """
import os, time
def f(x):
    if x == "hang": time.sleep(99)
    if x == "crash": raise ValueError(x)
    if x == "exit": os._exit(0)
    return x
if __name__ == "__main__":
    text = input()
    while text == "hang": pass
    print(f(text))
"""


@pytest.mark.fault("program hangs in a case", sees="that case is not passed, the others count")
def test_a_hang_costs_its_case_only(share: CodeReward) -> None:
    inputs = ["a", "hang", "b", "crash", "exit", "c"]
    found = judgement(share, FALLIBLE, cases=[{"stdin": text, "stdout": text} for text in inputs])
    assert (found.score, found.passed) == (pytest.approx(3 / 6), 3)
    assert "case 1: it did not end within 1 s; case 3: exit status 1: ValueError: crash" in found.reason
    # Time to define a program does not count as a case.
    for program in (FALLIBLE, f"import time\ntime.sleep(1.5)\n{FALLIBLE}"):
        found = judgement(share, program, cases=[call("f", text, expected=text) for text in inputs])
        assert (found.passed, found.cases) == (3, 6)
        assert found.reason == (
            "case 1: no answer within 1 s; case 3: ValueError: crash; case 4: its process ended with exit status 0"
        )


def test_a_hang_leaves_time_for_the_other_cases_without_a_case_timeout() -> None:
    with judged(score="share", timeout=3.0) as reward:
        cases = [{"stdin": text, "stdout": text} for text in ("hang", "a", "b", "c")]
        found = judgement(reward, "x = input()\nwhile x == 'hang': pass\nprint(x)", cases=cases)
    assert found.passed == 3


def test_all_stops_at_the_first_failed_case(unfenced: CodeReward, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    found = judgement(unfenced, f"open({str(runs)!r}, 'a').write('x')", cases=[{"stdin": "", "stdout": "a"}] * 50)
    assert found.reason == "case 0: it printed '', expected 'a'"
    assert runs.read_text() == "x"


@pytest.mark.fault("program prints without end", sees="0.0: it printed more than its limit")
def test_an_output_flood_is_ended() -> None:
    with judged(max_output="1MiB", timeout=30) as reward:
        for stream in ("stdout", "stderr"):
            found = judgement(reward, f"import sys\nwhile True: sys.{stream}.write('x' * 65536)", cases=CASES)
            assert (found.score, found.reason) == (0.0, "case 0: it printed more than 1048576 bytes")
        assert (
            "more than 1048576 bytes"
            in judgement(reward, "def f(): return 'x' * (1 << 21)", cases=[call("f", expected=1)]).reason
        )
        # What a function prints is nobody's.
        flood = "import sys\ndef f():\n    sys.stdout.write('x' * (1 << 23))\n    return 1"
        assert judgement(reward, flood, cases=[call("f", expected=1)]).score == 1.0


def test_large_inputs_and_outputs_pass_whole(every: CodeReward) -> None:
    text = "0123456789" * 200_000
    assert judgement(every, "print(input()[::-1])", cases=[{"stdin": text, "stdout": text[::-1]}]).score == 1.0
    # A program that reads nothing of a large input.
    assert judgement(every, "print(1)", cases=[{"stdin": text, "stdout": "1"}]).score == 1.0
    large = list(range(50_000))
    assert judgement(every, "def f(x): return x[::-1]", cases=[call("f", large, expected=large[::-1])]).score == 1.0


@pytest.mark.fault("program leaves processes behind", sees="they end with it")
def test_grandchildren_end_with_their_program(unfenced: CodeReward) -> None:
    leaves = (
        "import os, time\n"
        "for daemon in (False, True):\n"
        "    if os.fork() == 0:\n"
        "        if daemon: os.setsid()\n"
        "        if daemon and os.fork(): os._exit(0)\n"
        "        os.write(1, b'%d ' % os.getpid())\n"
        "        time.sleep(600)\n"
        "time.sleep(0.3)\n"
    )
    pids = [int(pid) for pid in _printed(unfenced, leaves).split()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _printed(reward: CodeReward, program: str) -> str:
    """The output of a program, as the reason says it."""
    reason = judgement(reward, program, cases=[{"stdin": "", "stdout": "-"}]).reason
    return reason.split("it printed '")[1].split("'")[0]


def test_a_program_finds_nothing_of_its_cases_or_the_environment(unfenced: CodeReward) -> None:
    program = (
        "import sys, os, gc\n"
        "seen = repr([one for one in gc.get_objects() if type(one) in (str, dict, list)])\n"
        "names = [name for name in os.environ if not name.endswith('_NUM_THREADS')]\n"
        "print(''.join(['ses', 'ame']) in seen, names, sys.argv, sorted(os.listdir('/proc/self/fd')))"
    )
    found = judgement(unfenced, program, cases=[{"stdin": "", "stdout": "open " + "sesame"}])
    # 3 is the listing itself
    assert found.reason.startswith("case 0: it printed \"False [] ['program.py'] ['0', '1', '2', '3']\\n\"")


def test_functions_by_name_and_class(every: CodeReward) -> None:
    program = "class Solution:\n    def add(self, a, b=1): return a + b\ndef one(): return 1"
    cases = [
        call("add", 1, expected=2),
        call("Solution.add", 1, 5, expected=6),
        {"fn": "add", "kwargs": {"a": 1, "b": 3}, "expected": 4},
        call("one", expected=1),
    ]
    assert judgement(every, program, cases=cases).score == 1.0
    for name in ("two", "Solution.two", "Other.add"):
        found = judgement(every, program, cases=[call(name, expected=1)])
        assert (found.score, found.reason) == (0.0, f"case 0: the program defines no '{name}'")


def test_a_program_that_can_not_be_loaded_is_loaded_once(share: CodeReward, tmp_path: Path) -> None:
    cases = [call("f", number, expected=number) for number in range(30)]
    loads = tmp_path / "loads"
    program = f"with open({str(loads)!r}, 'a') as loads: loads.write('x')\nwhile True: pass\ndef f(x): return x"
    with judged(score="share", case_timeout=1.0, timeout=6, isolation="none") as reward:
        found = judgement(reward, program, cases=cases)
    assert found.passed == 0
    assert "could not be loaded: no answer within 3 s" in found.reason
    assert loads.read_text() in ("x", "xx")  # once more where others had the processors
    assert "could not be loaded: SyntaxError" in judgement(share, "def f(:", cases=cases).reason
    assert "and 25 more" in found.reason


def test_large_arguments_are_no_time_of_the_program() -> None:
    """A coarse bound: they took a second to be written, and one to be read."""
    given = [list(range(1_000_000)), {str(number): number for number in range(100_000)}]
    with judged(case_timeout=1.0, timeout=20) as reward:
        found = judgement(reward, "def f(x, y): return len(x) + len(y)", cases=[call("f", *given, expected=1_100_000)])
    assert (found.score, found.reason) == (1.0, "")


def test_arrays_are_judged_as_lists() -> None:
    pytest.importorskip("numpy")
    program = "import numpy\ndef f(x): return numpy.array(x) * 2, numpy.int64(3)"
    with judged(modules=["numpy"], timeout=20, memory_limit="2GiB") as reward:
        found = judgement(reward, program, cases=[call("f", [1, 2], expected=[[2, 4], 3])])
    assert (found.score, found.reason) == (1.0, "")


def test_answers_written_ahead_are_none(every: CodeReward) -> None:
    """A program that writes its answers before the calls does not know their nonces."""
    program = (
        "import os, struct\nfrom guerdon.rewards.code.child.encoding import encode\n"
        "def f(x):\n    for _ in range(9):\n        data = encode((b'12345678', 'value', 3))\n"
        "        os.write(3, struct.pack('<I', len(data)) + data)\n    return 3"
    )
    found = judgement(every, program, cases=[call("f", 1, expected=3), call("f", 2, expected=3)])
    assert (found.score, found.reason) == (0.0, "case 0: it wrote to the channel of its answers")


@pytest.mark.fault("completion without a program", sees="0.0: no code block")
def test_completions_without_a_program_score_zero(every: CodeReward) -> None:
    columns = {"cases": [CASES] * 4}
    completions = ["no code", block("x", "cpp"), "", block("x = '\ud800'")]
    assert every(completions=completions, **columns) == [0.0] * 4
    conversation = [{"role": "assistant", "content": block(INCREMENT)}]
    assert every(completions=[conversation], cases=[CASES]) == [1.0]


def test_kills_come_soon_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of a processor: where others have it, a case takes up to 1.9 s, once."""
    monkeypatch.setattr(ProgramEnd, "was_starved", lambda *_: False)
    with judged(score="share", case_timeout=0.3, timeout=20) as reward:
        in_process(reward)
        assert judgement(reward, INCREMENT, cases=CASES).score == 1.0
        started = time.monotonic()
        judgement(reward, "while True: pass", cases=CASES)
        assert 2 * 0.3 <= time.monotonic() - started < 6.0


def _near(expected: float, value: float) -> bool:
    return abs(expected - value) < 0.5


def test_a_comparison_that_raises_on_what_a_program_gave_is_not_passed() -> None:
    with judged(compare=_near) as reward:
        assert judgement(reward, "def f(): return 1.1", cases=[call("f", expected=1)]).score == 1.0
        found = judgement(reward, "def f(): return 'text'", cases=[call("f", expected=1)])
        assert (found.score, found.reason) == (0.0, "case 0: it returned 'text', expected 1")
        with pytest.raises(DataError, match="compare raised TypeError"):
            judgement(reward, "def f(): return 1.1", cases=[call("f", expected="text")])
