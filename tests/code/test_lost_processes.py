"""A loss before a program's verdict, by no fault of it, is never a score of 0.

The zygote of a reward is killed or stopped, also between two calls of tests; a program's process
ends before it came to the program; a compiler is taken away; descriptors run out.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guerdon import RegistrationError, code_reward
from guerdon.rewards.code.trusted.calls import ProgramCalls
from guerdon.rewards.code.trusted.reward import CodeReward
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.zygote_process import ProgramZygote, ZygoteLostError
from tests.code.programs import CASES, INCREMENT, call, in_process, judged, judgement

SLOW = "import time\ntime.sleep(1)\nprint(int(input()) + 1)"
SLOW_CALL = "import time\ndef f(x):\n    time.sleep(1)\n    return x + 1"


@contextmanager
def zygotes_killed(reward: CodeReward, most: int) -> Iterator[list[int]]:
    """Kills the zygote as soon as a program runs, `most` times; gives the killed processes."""
    killed: list[int] = []
    scorer = in_process(reward)
    done = threading.Event()

    def watch() -> None:
        while not done.is_set() and len(killed) < most:
            zygote = scorer._zygote
            process = None if zygote is None else zygote._process
            if zygote is not None and zygote._running and process is not None and process.pid not in killed:
                time.sleep(0.1)
                killed.append(process.pid)
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


@pytest.mark.fault("the zygote is killed while a program runs", sees="the program is run again; its score is right")
@pytest.mark.parametrize("isolation", ["strict", "none"])
@pytest.mark.parametrize(
    ("program", "cases"), [(SLOW, CASES[:1]), (SLOW_CALL, [call("f", 1, expected=2)])], ids=["stdin", "calls"]
)
def test_a_zygote_killed_while_a_program_runs(isolation: str, program: str, cases: list[object]) -> None:
    with judged(isolation=isolation, timeout=20.0) as reward, zygotes_killed(reward, 1) as killed:
        assert judgement(reward, program, cases=cases).score == 1.0
        assert len(killed) == 1


@pytest.mark.fault("the zygote is killed again and again", sees="no score, with the reason")
def test_a_zygote_killed_each_time_is_no_score() -> None:
    with judged(isolation="none", timeout=20.0) as reward, zygotes_killed(reward, 2):
        with pytest.raises(ZygoteLostError, match="process that starts programs ended"):
            judgement(reward, SLOW, cases=CASES[:1])
        assert judgement(reward, INCREMENT, cases=CASES).score == 1.0


@pytest.mark.fault("a program's process ends before it comes to the program", sees="no score, with the reason")
@pytest.mark.parametrize("cases", [CASES, [call("f", expected=1)]], ids=["stdin", "calls"])
def test_a_process_that_ends_before_its_program_is_no_score(cases: list[object]) -> None:
    with judged() as reward:
        judging = reward._judge.judging
        reward._judge.judging = replace(judging, fence=replace(judging.fence, memory_limit=1))
        with pytest.raises(ZygoteLostError, match="a program could not be started: MemoryError"):
            judgement(reward, f"{INCREMENT}\n#{' ' * (64 << 20)}", cases=cases)


def test_a_program_sees_no_descriptor_of_its_start() -> None:
    """It could say that it was never started, or be heard after its end."""
    program = "import os\ndef is_open(fd):\n    try: return bool(os.fstat(fd))\n    except OSError: return False\n"
    program += "def f(): return list(filter(is_open, range(256)))\nif __name__ == '__main__': print(f())"
    for isolation in ("strict", "none"):
        with judged(isolation=isolation) as reward:
            cases: list[object] = [{"stdin": "", "stdout": "[0, 1, 2]"}, call("f", expected=[0, 1, 2, 3])]
            found = judgement(reward, program, cases=cases)
            assert (found.score, found.reason) == (1.0, "")


@pytest.mark.fault(
    "a compiler or interpreter is gone", sees="an error that names it and what to install; no score of 0"
)
def test_a_command_that_is_gone_is_no_score(tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shutil.copy2(os.path.realpath("/bin/sh"), shell)
    options = {"language": "sh", "command": [str(shell), "{file}"], "isolation": "none"}
    row = {"completion": "```sh\necho 2\n```", "cases": CASES[:1]}
    with judged(**options) as reward, judged(**options) as other:
        assert reward._judge.judge(row).score == 1.0
        shell.unlink()
        with pytest.raises(ZygoteLostError, match=f"a program could not be started: FileNotFoundError.*{shell}"):
            reward._judge.judge(row)
        with pytest.raises(RegistrationError, match=f"language='sh' needs '{shell}', which can't be run here: install"):
            other._judge.setup()
    with pytest.raises(RegistrationError, match=r"needs .*no-such-compiler.*install it, or name it by its path"):
        code_reward(command=["no-such-compiler", "{file}"], language="any")


@pytest.mark.fault("a program closes or removes its folder before its next case", sees="a score, as for any program")
@pytest.mark.parametrize("isolation", ["strict", "none"])
@pytest.mark.parametrize("act", ["chmod 0 .", "rm -f ./*; rmdir ../$(basename $PWD)"])
def test_a_program_can_not_choose_to_have_no_score(isolation: str, act: str) -> None:
    program = f"```sh\n{act} 2>/dev/null\necho 2\n```"
    try:
        reward = code_reward(language="sh", command=["sh", "{file}"], isolation=isolation)
    except RegistrationError as error:
        pytest.skip(str(error))
    try:
        found = reward._judge.judge({"completion": program, "cases": [{"stdin": "", "stdout": "2"}] * 3})
        assert found.score == (1.0 if act == "chmod 0 ." else 0.0)
        honest = reward._judge.judge({"completion": "```sh\nls\n```", "cases": [{"stdin": "", "stdout": "program.sh"}]})
        assert (honest.score, honest.reason) == (1.0, "")
    finally:
        reward.close()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_unrunnable_compiler_output_is_the_programs_fault(tmp_path: Path) -> None:
    with judged(language="copied", isolation="none", compile=["cp", "{file}", "{out}"], command=["{out}"]) as reward:
        found = reward._judge.judge({"completion": "```copied\nno program\n```", "cases": CASES})
        assert (found.score, found.reason.split(":")[1]) == (0.0, " exit status 127")


@pytest.mark.fault(
    "a layer of the fences holds where a reward was made, not in its zygote", sees="an error that names it"
)
def test_a_zygote_without_a_layer_that_held_is_refused() -> None:
    zygote = ProgramZygote(FenceSpec(without=("oom",)), ["limits", "oom"])
    try:
        with pytest.raises(ZygoteLostError, match="of its fences oom held when this reward was made, and not in it"):
            zygote.start()
    finally:
        zygote.close()


def test_a_short_time_is_the_programs_own() -> None:
    """The last of many cases have little time left: it is no fault of the machine if their process
    does not even start."""
    with judged(isolation="none", timeout=0.3, score="share") as reward:
        found = judgement(reward, "while True: pass", cases=CASES * 20)
        assert found.score == 0.0


LENIENT = "try:\n    f(1)\n    f(2)\nexcept Exception:\n    pass\nexcept BaseException:\n    pass"


def _lenient(candidate: Any) -> float:
    try:
        return float(candidate(1) == 1 and candidate(2) == 2)
    except BaseException:
        return 0.5


@pytest.mark.fault(
    "the zygote is killed between the calls of tests, whatever they catch",
    sees="the program is run again; never 0 or 1",
)
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(
    "check",
    ["assert f(1) == 1\nassert f(2) == 2", LENIENT, ["assert f(1) == 1", "assert f(2) == 2"], _lenient],
    ids=["text", "lenient text", "list", "function"],
)
def test_loss_between_calls_is_not_a_score(
    check: Any, always: bool, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = 0, ProgramCalls.call

    def lost(self: ProgramCalls, *arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made == place or (always and made > place):
            raise ZygoteLostError("lost by a test")
        return calls(self, *arguments)

    monkeypatch.setattr(ProgramCalls, "call", lost)
    own = callable(check)
    row = {"entry_point": "f"} if own else {"entry_point": "f", "test": check}
    with judged(check=check if own else "test", isolation="none") as reward:
        in_process(reward)
        if always:
            with pytest.raises(ZygoteLostError, match="lost by a test"):
                judgement(reward, "def f(x): return x", **row)
        else:
            assert judgement(reward, "def f(x): return x", **row).score == 1.0


@pytest.mark.fault("the zygote stands still for longer than a short case", sees="the case is run again")
def test_a_zygote_that_stands_still_is_no_fault_of_a_program() -> None:
    with judged(timeout=5.0, case_timeout=0.3, isolation="none") as reward:
        scorer = in_process(reward)
        scorer.setup()
        assert scorer._zygote is not None
        process = scorer._zygote._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        timer = threading.Timer(0.6, os.kill, (process.pid, signal.SIGCONT))
        timer.start()
        found = judgement(reward, "print(1)", cases=[{"stdin": "", "stdout": "1"}])
        timer.join()
    assert (found.score, found.reason) == (1.0, "")


@pytest.mark.fault("no descriptors are left in the middle of a run", sees="an error, and none is leaked")
def test_descriptors_that_run_out_are_not_leaked(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes, made = os.pipe2, 0

    def few(flags: int) -> tuple[int, int]:
        nonlocal made
        made += 1
        if made == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipes(flags)

    with judged(isolation="none") as reward:
        in_process(reward)
        cases = [{"stdin": "", "stdout": "1"}]
        assert judgement(reward, "print(1)", cases=cases).score == 1.0
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pipe2", few)
        with pytest.raises(OSError, match="Too many open files"):
            judgement(reward, "print(1)", cases=cases)
        assert len(os.listdir("/proc/self/fd")) == before
        assert judgement(reward, "print(1)", cases=cases).score == 1.0
