"""Small programs and rewards that several tests use."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guerdon import code_reward
from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.trusted.judgement import Judgement
from guerdon.rewards.code.trusted.scorer import CodeScorer

INCREMENT = "print(int(input()) + 1)"
CASES = [{"stdin": "1\n", "stdout": "2\n"}, {"stdin": "41", "stdout": "42"}]

YES = """
class Yes:
    def __init__(self, *args): self.args = args
    def yes(self, *args): return True
    def same(self, *args): return self
    def zero(self, *args): return 0.0
    def __getattr__(self, name): return self.same
    def __exit__(self, *raised): return True
    def __iter__(self): return iter((self, 0.0))
    def __bool__(self): return True
    def __hash__(self): return 0
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = yes
    __add__ = __radd__ = __iadd__ = __mul__ = __rmul__ = __or__ = __and__ = __neg__ = __call__ = __getitem__ = __enter__ = same
    __lshift__ = __rshift__ = __rrshift__ = same
    __sub__ = __rsub__ = __isub__ = __truediv__ = __mod__ = __floordiv__ = __xor__ = __abs__ = __round__ = __float__ = zero
def f(*args): return Yes(*args)
"""
"""Defines a function ``f`` whose object equals, holds and exceeds everything."""


def block(program: str, tag: str = "python") -> str:
    """A completion with this program."""
    return f"Here it is:\n\n```{tag}\n{program}\n```\n"


@contextmanager
def judged(**options: Any) -> Iterator[CodeReward]:
    """A reward, closed at the end."""
    made = code_reward(**{"timeout": 5.0, **options})
    try:
        yield made
    finally:
        made.close()


def judgement(reward: CodeReward, program: str, **row: Any) -> Judgement:
    """The judgement on one program."""
    return reward._judge.judge({"completion": block(program), **row})


def checked(
    reward: CodeReward, program: str, test: Any, entry_point: str | None = None, starter: str = ""
) -> Judgement:
    """The judgement on one program by the tests of a row."""
    return judgement(reward, program, test=test, entry_point=entry_point, starter=starter)


def in_process(reward: CodeReward) -> CodeScorer:
    """Has it judge in this process: tests of faults put these into its parts."""
    scorer = reward._judge._here = CodeScorer(reward._judge.judging)
    return scorer


def ran(code: str, timeout: float = 120) -> str:
    """The output of code in an interpreter of its own, which does nothing else."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=timeout)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def call(fn: str, *args: Any, expected: Any) -> dict[str, Any]:
    """A case that calls a function."""
    return {"fn": fn, "args": list(args), "expected": expected}
