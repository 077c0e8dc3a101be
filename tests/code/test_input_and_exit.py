"""Programs read their input, and end, as in the place that they were written for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, RegistrationError
from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.trusted import warn_once
from tests.code.programs import call, judged, judgement

NUMBERS = [{"stdin": "3\n1 2 3\n", "stdout": "9\n"}]


def test_no_program_reads_the_input_of_another(every: CodeReward) -> None:
    assert judgement(every, "print(open('/dev/stdin').read())", cases=[{"stdin": "1", "stdout": "1"}]).score == 1.0
    hidden = "path = '/dev' + '/stdin'\ntry:\n    print(open(path).read())\nexcept OSError:\n    print('none')"
    assert judgement(every, hidden, cases=[{"stdin": "", "stdout": "none"}]).score == 1.0


FAST_OUTPUT = """
import os, sys
from io import BytesIO, IOBase
class Out(IOBase):
    def __init__(self):
        self.buffer = BytesIO()
    def write(self, text):
        self.buffer.write(text.encode())
    def flush(self):
        os.write(1, self.buffer.getvalue())
        self.buffer.truncate(0), self.buffer.seek(0)
sys.stdout = Out()
print(9)
"""
POOL = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
print(sum(pool.map(int, "333")))
"""
IN_EXECUTOR = """
import asyncio
async def main():
    print(await asyncio.get_running_loop().run_in_executor(None, lambda: 9))
asyncio.run(main())
"""
THREAD_POOL = """
from multiprocessing.pool import ThreadPool
print(sum(ThreadPool(2).map(int, "333")))
"""
LARGE_STACK = """
import sys, threading
sys.setrecursionlimit(1 << 25)
threading.stack_size(512 << 20)
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
thread = threading.Thread(target=lambda: print(depth(20_000) - 19_991))
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    "program",
    [
        "print(sum(map(int, open('/dev/stdin').read().split())))",
        "import os, io\nlines = io.BytesIO(os.read(0, os.fstat(0).st_size))\nprint(sum(map(int, lines.read().split())))",
        "import mmap\nprint(sum(map(int, mmap.mmap(0, 0, access=mmap.ACCESS_READ).read().split())))",
        "import sys\nprint(int(input()) + sum(map(int, sys.stdin.read().split())))",
        "import sys\nsys.stdin.read()\nsys.stdin.seek(0)\nprint(sum(map(int, sys.stdin.read().split())))",
        FAST_OUTPUT,
        POOL,
        IN_EXECUTOR,
        THREAD_POOL,
        LARGE_STACK,
        "import os\nos.path.abspath(__file__)\nprint(9)",
        "print(len(str(10**5000)) - 4992)",
    ],
    ids=[
        *("/dev/stdin", "fstat", "mmap", "input", "seek"),
        *("output", "executor", "loop", "ThreadPool", "stack", "__file__", "digits"),
    ],
)
def test_programs_read_and_end_as_under_python(every: CodeReward, program: str) -> None:
    found = judgement(every, program, cases=NUMBERS)
    assert (found.score, found.reason) == (1.0, "")


def test_integers_of_cases_may_be_long(every: CodeReward) -> None:
    digits = "1" * 5000
    case = f'[{{"fn": "f", "args": [{digits}], "expected": {digits}}}]'
    assert judgement(every, "def f(x): return x", cases=case).score == 1.0


def _is_a_factor(expected: str, printed: str, given: str) -> bool:
    return int(given) % int(printed) == 0 and 1 < int(printed) < int(given)


def _same_length(expected: Any, value: Any, given: list[Any]) -> bool:
    return len(value) == len(given[0])


def test_a_comparison_gets_the_input() -> None:
    with judged(compare=_is_a_factor) as reward:
        cases = [{"stdin": "15", "stdout": "3"}]
        with pytest.raises(DataError, match="fails on what is expected"):
            judgement(reward, "print('x')", cases=[{"stdin": "15", "stdout": "x"}])
        assert [judgement(reward, f"print({one!r})", cases=cases).score for one in (3, 5, 7, "x")] == [1, 1, 0, 0]
    with judged(compare=_same_length) as reward:
        assert judgement(reward, "def f(x): return x", cases=[call("f", [1], expected=[2])]).score == 1.0
    with pytest.raises(RegistrationError, match="compare="):
        judged(compare=lambda expected: True).__enter__()


def _raises(expected: str, printed: str) -> bool:
    return bool(1 / len(printed.split()) and int(printed))


def test_a_comparison_that_raises_without_a_reference_is_not_passed(caplog: pytest.LogCaptureFixture) -> None:
    warn_once._warned.clear()
    with judged(compare=_raises) as reward:
        for _ in range(2):
            assert judgement(reward, "print('x')", cases=[{"stdin": "", "stdout": ""}]).score == 0.0
    assert caplog.text.count("compare raised") == 1


def test_a_module_that_only_the_trainer_has_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once._warned.clear()
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    caplog.set_level(logging.WARNING)
    with judged() as reward:
        for program in ("import only_here", "import only_here", "import nowhere_at_all"):
            assert judgement(reward, program, cases=NUMBERS).score == 0.0
    assert caplog.text.count("modules=['only_here']") == 1
    assert "nowhere_at_all" not in caplog.text
