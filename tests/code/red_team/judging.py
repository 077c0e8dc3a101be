"""Judges the programs of the red team by code rewards, each beside an honest one.

As a program, in the jail: judges all attempts without name spaces, as in a container that refuses
these, and prints what it found as JSON.
"""

from __future__ import annotations

import contextlib
import json
import platform
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from guerdon import Dispatcher, code_reward
from guerdon.rewards.code.trusted.reward import CodeReward
from tests.code.red_team.program import STYLES, Program, Style, completion
from tests.code.red_team.table import ALL

__all__ = ["GOLD", "TIMEOUT_S", "Found", "columns", "direct", "judge_all", "runs_here", "tried"]

GOLD: Final = f"gold-{secrets.token_hex(8)}"
"""The answer that forgeries don't know, another in each run."""

TIMEOUT_S: Final = 5.0
# Of programs that end only with their time.
SHORT_S: Final = 0.8

Found = tuple[str, Style, float, str]
"""A program's name, how it was tried, its score and the reason."""


def runs_here(program: Program) -> bool:
    """Returns whether its text is for this machine."""
    return program.machine in ("", platform.machine())


def tried() -> list[tuple[Program, Style]]:
    """Each program that runs here, in each of its styles."""
    return [(program, style) for program in ALL if runs_here(program) for style in STYLES if style in program.styles]


def columns(program: Program | None, style: Style) -> dict[str, Any]:
    """The columns of a row beside the completion; None is the honest program."""
    expected = 42 if program is None or program.knows else GOLD
    if style == "stdin":
        return {"cases": [{"stdin": "20 22\n", "stdout": f"{expected}\n"}]}
    if style == "calls":
        return {"cases": [{"fn": "add", "args": args, "expected": expected} for args in ([20, 22], [40, 2])]}
    check = f"def check(candidate):\n    assert candidate(20, 22) == {expected!r}\n    assert candidate(40, 2) == {expected!r}\n"
    return {"check": check, "entry_point": "add"}


def judge_all() -> tuple[list[Found], list[Found]]:
    """The results of hostile programs and of honest ones, in batches with one honest program behind
    each hostile one. A program that uses up its time for judging is judged in this process."""
    hostile: list[Found] = []
    honest: list[Found] = []
    for program, style in tried():
        if program.judging_hangs:
            with contextlib.closing(code_reward(timeout=SHORT_S, check=_checks(style))) as reward:
                hostile.append(_judged(reward, program, style))
                honest.append(_judged(reward, None, style))
    for name, rows, options in _batches():
        reward = code_reward(name=name, **options)
        given = [pair for program, style in rows for pair in ((program, style), (None, style))]
        batch: dict[str, list[Any]] = {"completions": [completion(*pair) for pair in given]}
        for column in columns(*given[0]):
            batch[column] = [columns(*pair)[column] for pair in given]
        with Dispatcher([reward], workers=2, max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(**batch)
        reasons = result.extra[f"{name}/reason"]
        for (program, style), score, reason in zip(given, result.rewards.ravel().tolist(), reasons, strict=True):
            (honest if program is None else hostile).append(
                (program.name if program else "honest", style, score, reason)
            )
    return hostile, honest


def _checks(style: Style) -> str | None:
    """The column of tests, if rows of this style have one."""
    return "check" if style == "check" else None


def _judged(reward: CodeReward, program: Program | None, style: Style) -> Found:
    judged = reward._judge.judge({"completion": completion(program, style), **columns(program, style)})
    return program.name if program else "honest", style, judged.score, judged.reason


def _batches() -> Iterator[tuple[str, list[tuple[Program, Style]], dict[str, Any]]]:
    """Rows that one reward judges."""
    rows = [row for row in tried() if not row[0].judging_hangs]
    cases, check = ([row for row in rows if (row[1] == "check") == checks] for checks in (False, True))
    yield "cases", [row for row in cases if not row[0].hangs], {"timeout": TIMEOUT_S}
    # An honest program on a busy machine needs more time, so it is not judged by this one.
    yield "cases_hanging", [row for row in cases if row[0].hangs], {"timeout": SHORT_S}
    yield "check", check, {"timeout": TIMEOUT_S, "check": "check"}


@contextlib.contextmanager
def direct(without: tuple[str, ...] = ()) -> Iterator[CodeReward]:
    """A reward that judges one program after the other in one zygote.

    Args:
        without: Layers of the fences that are left out.
    """
    reward = code_reward(timeout=TIMEOUT_S)
    judging = reward._judge.judging
    reward._judge.judging = replace(judging, fence=replace(judging.fence, without=without))
    try:
        yield reward
    finally:
        reward.close()


def _main(without: Sequence[str]) -> None:
    found = []
    with direct(tuple(without)) as reward:
        for program, style in tried():
            if program.knows and style == "stdin":
                found += [_judged(reward, one, style) for one in (program, None)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main(sys.argv[1:])
