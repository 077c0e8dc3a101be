"""The red team: hostile programs, each judged as wrong, none of which leaves anything behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import guerdon
from guerdon import RegistrationError, code_reward
from guerdon.rewards.code.trusted import judge
from tests.code.red_team import judging
from tests.code.red_team.jail import run_in_jail, why_no_jail
from tests.code.red_team.judging import TIMEOUT_S, direct, judge_all
from tests.code.red_team.left_behind import left, orphans_come_here
from tests.code.red_team.program import completion
from tests.code.red_team.programs.shared_state import LEFT
from tests.code.red_team.table import ALL

CASES = [{"stdin": "20 22\n", "stdout": "42\n"}]


@pytest.mark.fault(
    "two hundred hostile programs: forged values, output and verdicts, patched modules, searches for the answer, "
    "attacks on files, processes and the kernel, floods",
    sees="0 with a reason for each; honest programs beside them score 1; nothing is left behind",
)
def test_every_program_scores_0_and_its_neighbour_1(untouched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs_strict()
    monkeypatch.setattr(judge, "BESIDE_S", 2.0)
    hostile, honest = judge_all()
    assert [one for one in hostile if one[2] != 0.0 or not one[3]] == []
    assert [one for one in honest if one[2] != 1.0] == []
    # Reasons go to terminals and files: a program puts no control characters there.
    assert [reason for *_, reason in hostile if not reason.isprintable()] == []
    assert len({name for name, *_ in hostile}) >= 150


@pytest.mark.fault(
    "hostile programs where no name spaces are allowed, as in containers, and by a user without rights",
    sees="0 with a reason for each; honest programs beside them score 1",
)
def test_without_name_spaces_every_act_fails() -> None:
    _jail()
    root = Path(guerdon.__file__).parents[1]
    tests = Path(__file__).parents[3]
    boot = (
        f"import sys; sys.path[:0] = [{str(root)!r}, {str(tests)!r}]; sys.argv[1:] = ['pid', 'namespaces', 'folder']; "
        f"import runpy; runpy.run_module({judging.__name__!r}, run_name='__main__')"
    )
    ended = run_in_jail([sys.executable, "-s", "-c", boot], b"", [str(root), str(tests / "tests")], 120.0)
    if b"does not hold here" in ended.stderr:
        pytest.skip(ended.stderr.decode("utf-8", "replace")[-500:])
    found = json.loads(ended.stdout) if ended.stdout else ended.stderr.decode("utf-8", "replace")
    assert [one for one in found if one[0] != "honest" and (one[2] != 0.0 or not one[3])] == []
    assert [one for one in found if one[0] == "honest" and one[2] != 1.0] == []
    assert len(found) >= 100


@pytest.mark.fault(
    "a program leaves modules, files, variables and a process for the next one, or closes its folder to it",
    sees="the next program of the same zygote finds none of them, and runs",
)
@pytest.mark.parametrize("what", LEFT)
def test_nothing_is_left_for_the_next_program(what: str, untouched: None) -> None:
    _needs_strict()
    leaves, finds = LEFT[what]
    with direct() as reward:
        for program in (finds, leaves, finds):
            row = {"completion": f"```python\n{program}\n```", "cases": CASES}
            judged = reward._judge.judge(row)
            assert judged.score == 0.0
            # Where there is no folder of its own, there is nothing to change.
            expected = ("'left", "Error") if program is leaves else ("nothing was left",)
            assert any(one in judged.reason for one in expected)
        assert reward(completions=[completion(None, "stdin")], cases=[CASES]) == [1.0]


def test_a_process_that_outlives_its_parents_is_seen() -> None:
    """The process of this test has a session of its own."""
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\n    os.close(1)\n    time.sleep(60)"
    with orphans_come_here():
        before = left()
        ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        found = left()
        os.kill(int(ended.stdout), signal.SIGKILL)
        os.waitpid(int(ended.stdout), 0)  # a child of this process; it may end a moment later
        assert found["processes"] != before["processes"]
        assert int(ended.stdout) in found["processes"]


def test_attempts_work_where_nothing_fences_them() -> None:
    """A score of 0 then says that the fences held, not that the program is wrong."""
    _jail()
    jobs = [
        (program.name, completion(program, "stdin")) for program in ALL if program.works and judging.runs_here(program)
    ]
    passed = _graded([["unfenced", _text(answer), ""] for _, answer in jobs])
    assert [name for (name, _), one in zip(jobs, passed, strict=True) if not one] == []
    assert len(jobs) >= 30


def test_forgeries_beat_weak_graders() -> None:
    _jail()
    tests = "def check(candidate):\n    assert candidate(20, 22) == 'gold-0123456789abcdef'\n"
    jobs = [(program, grader) for program in ALL for grader in program.beats]
    passed = _graded([[grader, _text(completion(program, "calls")), tests] for program, grader in jobs])
    assert [(program.name, grader) for (program, grader), one in zip(jobs, passed, strict=True) if not one] == []
    # A grader that passes everything would prove nothing.
    graders = ("human-eval", "exit code", "last line")
    assert _graded([[grader, "def add(a, b): return 0", tests] for grader in graders]) == [False] * 3


def test_the_page_of_the_red_team_is_up_to_date() -> None:
    root = Path(__file__).parents[3]
    names = [program.name for program in ALL]
    assert len(names) == len(set(names)) >= 200
    made = subprocess.run([sys.executable, root / "scripts/red-team-table"], capture_output=True, text=True, check=True)
    page = (root / "docs/internals/red-team.md").read_text(encoding="utf-8")
    assert page == made.stdout, "the programs have changed: scripts/red-team-table >docs/internals/red-team.md"


def _needs_strict() -> None:
    try:
        code_reward(timeout=TIMEOUT_S)
    except RegistrationError as error:
        pytest.skip(str(error))


def _jail() -> None:
    why = why_no_jail()
    if why:
        pytest.skip(f"no jail on this machine: {why}")


def _graded(jobs: list[list[str]]) -> list[bool]:
    graders = str(Path(__file__).with_name("weak_graders.py"))
    ended = run_in_jail([sys.executable, "-I", graders], json.dumps(jobs).encode(), [graders], 240.0)
    assert ended.returncode == 0, ended.stderr.decode("utf-8", "replace")[-2000:]
    found: list[bool] = json.loads(ended.stdout)
    return found


def _text(answer: str) -> str:
    return answer.split("```python\n")[1].rsplit("\n```", 1)[0]
