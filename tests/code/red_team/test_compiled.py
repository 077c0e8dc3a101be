"""The red team in C: programs that may start processes, and attacks on their compiler."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from guerdon import RegistrationError, code_reward
from tests.code.red_team.programs.compiled import COMPILED, HONEST

CASES = [{"stdin": "20 22\n", "stdout": "42\n"}, {"stdin": "40 2\n", "stdout": "42\n"}]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.fault(
    "hostile programs in C: fork bombs, daemons, signals, sockets, sources that read secrets or never end compiling",
    sees="0 with a reason for each; honest programs between them score 1; nothing is left behind",
)
def test_every_compiled_program_scores_0(untouched: None) -> None:
    try:
        reward = code_reward(language="c", timeout=3.0)
    except RegistrationError as error:
        pytest.skip(str(error))
    found = {}
    with contextlib.closing(reward):
        for number, (name, text) in enumerate(COMPILED.items()):
            judged = reward._judge.judge({"completion": f"```c\n{text}\n```", "cases": CASES})
            found[name] = (judged.score, judged.reason)
            if number % 4 == 3:
                honest = reward._judge.judge({"completion": f"```c\n{HONEST}\n```", "cases": CASES})
                assert (name, honest.score, honest.reason) == (name, 1.0, "")
    assert {name: one for name, one in found.items() if one[0] != 0.0 or not one[1]} == {}
    assert not any(reason.endswith(": ") for _, reason in found.values())
    assert not any("root:" in reason for _, reason in found.values())
