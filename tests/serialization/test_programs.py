"""Reward functions of programs that are started in any way that Python knows."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.serialization.programs import attempt, run, write

FUNCTIONS = """
import re
from guerdon import Dispatcher, reward

OFFSET = 2.0

class Rule:
    def __init__(self, pattern):
        self.pattern = pattern

def helper(text, rule):
    assert isinstance(rule, Rule)
    return len(re.findall(rule.pattern, text)) + OFFSET

@reward(timeout=30)
def score(completion, rule):
    return helper(completion, rule)

"""
SCORE = """
with Dispatcher([score, reward(lambda text: float(len(text)), name="length")], workers=1) as dispatcher:
    result = dispatcher.score(completions=["a", "xbxdx"], rule=[Rule("a"), Rule("x")])
    assert not result.failures(), result.failures()
    print(__name__, result.rewards.ravel().tolist())
"""
GUARDED = FUNCTIONS + 'if __name__ == "__main__":\n' + textwrap.indent(SCORE, "    ")
EXPECTED = "__main__ [3.0, 1.0, 5.0, 5.0]\n"


# A module that imports its neighbours relatively, in a function too.
RELATIVE = FUNCTIONS.replace("OFFSET = 2.0", "from .numbers import OFFSET").replace(
    "    return helper(completion, rule)", "    from . import late\n    return helper(completion, rule) + late.ZERO"
)
TRAIN = {"here/train.py": FUNCTIONS + SCORE}


@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        pytest.param({"here/train.py": GUARDED}, ["train.py"], id="with a guard"),
        pytest.param(TRAIN, ["train.py"], id="without a guard"),
        pytest.param(
            {"rules/train.py": f"import beside\n{FUNCTIONS}{SCORE}", "rules/beside.py": ""},
            ["../rules/train.py"],
            id="from another folder",
        ),
        pytest.param(
            {
                "here/pack/train.py": RELATIVE + SCORE,
                "here/pack/numbers.py": "OFFSET = 2.0",
                "here/pack/late.py": "ZERO = 0",
                "here/pack/__init__.py": "",
            },
            ["-m", "pack.train"],
            id="a module",
        ),
        pytest.param({}, ["-c", FUNCTIONS + SCORE], id="an argument"),
        pytest.param({}, [], id="standard input"),
        pytest.param({}, ["-"], id="standard input, named"),
        # Isolated from the user's site and from the folder: workers find what this process finds.
        pytest.param(TRAIN, ["-I", "-X", "utf8", "train.py"], id="isolated"),
        pytest.param(TRAIN, ["-O", "train.py"], id="optimised"),
    ],
)
def test_programs_of_any_kind_score(files: dict[str, str], arguments: list[str], tmp_path: Path) -> None:
    """Workers never run the program again, so it needs no guard."""
    (tmp_path / "here").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    stdin = FUNCTIONS + SCORE if arguments in ([], ["-"]) else ""
    assert run(*arguments, cwd=tmp_path / "here", stdin=stdin) == EXPECTED


def test_an_edit_between_two_runs_reaches_the_workers(tmp_path: Path) -> None:
    program = """
    from guerdon import Dispatcher
    import rewards
    with Dispatcher([rewards.score], workers=1) as dispatcher:
        print(dispatcher.score(completions=["abc"]).rewards.item())
    """
    write(tmp_path, train=textwrap.dedent(program))
    for factor in ("2", "30"):
        text = f"from guerdon import reward\nfrom helper import FACTOR\n@reward\ndef score(text): return len(text) * FACTOR / {factor}\n"
        write(tmp_path, rewards=text, helper=f"FACTOR = {factor * 2}\n")
        assert run("train.py", cwd=tmp_path) == f"{3 * int(factor * 2) / int(factor)}\n"


POOL = """
import multiprocessing
from guerdon import Dispatcher, reward

def square(number):
    return number * number

@reward(timeout=60)
def pooled(completion, method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return float(sum(pool.map(square, range(int(completion)))))

"""
POOLED = """
with Dispatcher([pooled], workers=1) as dispatcher:
    result = dispatcher.score(completions=["4"] * 3, method=["fork", "spawn", "forkserver"])
    print(result.rewards.ravel().tolist(), [failure.reason for failure in result.failures()])
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_row_9_a_function_of_main_with_a_pool_of_its_own(how: str, tmp_path: Path) -> None:
    """Pools of any start method find the functions of the program."""
    main = POOL if how == "script" else f"from . import neighbour\n{POOL}"
    write(
        tmp_path,
        pack__neighbour="",
        pack__train=main + 'if __name__ == "__main__":\n' + textwrap.indent(POOLED, "    "),
    )
    arguments = ["pack/train.py"] if how == "script" else ["-m", "pack.train"]
    assert run(*arguments, cwd=tmp_path) == "[14.0, 14.0, 14.0] []\n"


def test_a_program_without_a_guard_that_its_own_children_import(tmp_path: Path) -> None:
    """multiprocessing's spawn imports the program in each child: there no engine starts, and the
    message says what to do."""
    spawns = "multiprocessing.get_context('spawn').Process(target=square, args=(2,))"
    write(
        tmp_path,
        train=f"{POOL}{POOLED.replace('4', '0')}child = {spawns}\nchild.start()\nchild.join()\nprint(child.exitcode)\n",
    )
    done = attempt("train.py", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "1", done.stderr
    assert "MainGuardError" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr


@pytest.mark.fault(
    "the module of a reward function scores a batch when it is imported",
    sees="`setup_failed`, with what to do; no worker's worker does the same",
)
def test_a_module_that_scores_when_a_worker_imports_it(tmp_path: Path) -> None:
    scores = """
    from guerdon import Dispatcher, reward

    @reward(max_failure_rate=1.0, timeout=20)
    def length(completion):
        return float(len(completion))

    with Dispatcher([length], workers=1) as dispatcher:
        result = dispatcher.score(completions=["a"])
        print([failure.reason for failure in result.failures()])
    """
    write(tmp_path, scores=textwrap.dedent(scores), train="import scores")
    done = attempt("train.py", cwd=tmp_path)
    assert "MainGuardError" in done.stdout, done.stderr
    assert 'if __name__ == "__main__":' in done.stdout
