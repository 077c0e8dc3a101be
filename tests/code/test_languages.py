"""Programs of other languages: compiled and run behind the same fences."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from guerdon import DataError, RegistrationError, code_reward
from tests.code.programs import CASES, block, judged

CPP = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n + 1 << std::endl; }"
HANGS = (
    "#include <iostream>\nint main() { int n; std::cin >> n; volatile int m = n; while (m == 1); std::cout << n + 1; }"
)
JAVASCRIPT = "const n = Number(require('fs').readFileSync(0, 'utf8'));\nconsole.log(n + 1);"
SHELL = "read n\necho $((n + 1))"


def needs(*commands: str) -> Any:
    missing = [command for command in commands if shutil.which(command) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {' or '.join(missing)}")


@needs("g++")
def test_cpp() -> None:
    with judged(language="cpp", score="share", case_timeout=1.0, timeout=20) as reward:
        assert reward(completions=[block(CPP, "cpp"), block(CPP, "C++"), block(CPP)], cases=[CASES] * 3) == [1, 1, 0]
        found = reward._scorer.judge({"completion": block("int main() { return x; }", "cpp"), "cases": CASES})
        assert found.score == 0.0
        assert "it does not compile: ./program.cpp:1" in found.reason
        found = reward._scorer.judge({"completion": block(HANGS, "cpp"), "cases": CASES})
        assert (found.passed, found.reason) == (1, "case 0: it did not end within 1 s")
        crash = "#include <cstdlib>\nint main() { abort(); }"
        found = reward._scorer.judge({"completion": block(crash, "cpp"), "cases": CASES})
        assert "ended by SIG" in found.reason


@needs("node")
def test_javascript() -> None:
    with judged(language="javascript") as reward:
        assert reward(completions=[block(JAVASCRIPT, "js"), block("x", "javascript")], cases=[CASES] * 2) == [1, 0]


def test_any_command() -> None:
    with judged(language="sh", command=["sh", "{file}"]) as reward:
        assert reward(completions=[block(SHELL, "sh"), block("exit 3", "sh")], cases=[CASES] * 2) == [1, 0]
        assert "exit status 3" in reward._scorer.judge({"completion": block("exit 3", "sh"), "cases": CASES}).reason
        # Each program has an empty folder.
        marks = "ls | tr '\\n' ' '; touch mark"
        assert reward(completions=[block(marks, "sh")] * 2, cases=[[{"stdin": "", "stdout": "program.sh"}]] * 2) == [
            1,
            1,
        ]


def test_names_of_files_within_parts_of_a_command() -> None:
    with judged(language="sh", command=["sh", "-c", ". {file}"]) as reward:
        assert reward(completions=[block(SHELL, "sh")], cases=[CASES]) == [1]
    copied = {"command": ["sh", "{out}"], "compile": ["sh", "-c", "cp {file} {out}"]}
    with judged(language="sh", **copied) as reward:
        assert reward(completions=[block(SHELL, "sh")], cases=[CASES]) == [1]
    # What a compiler makes may have a name of its own.
    with judged(language="sh", command=["sh", "other"], compile=["cp", "{file}", "other"]) as reward:
        assert reward(completions=[block(SHELL, "sh")], cases=[CASES]) == [1]


@needs("g++")
def test_without_fences() -> None:
    with judged(language="cpp", isolation="none") as reward:
        assert reward(completions=[block(CPP, "cpp")] * 2, cases=[CASES] * 2) == [1, 1]


def test_functions_are_for_python() -> None:
    with judged(language="sh", command=["sh", "{file}"]) as reward, pytest.raises(DataError, match="not for sh"):
        reward._scorer.judge({"completion": block("x", "sh"), "cases": [{"fn": "f", "expected": 1}]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "cobol"}, "one of 'python', 'cpp'"),
        ({"language": "sh", "command": "sh {file}"}, "a list of texts"),
        ({"language": "sh", "command": []}, "a list of texts"),
        ({"compile": ["gcc"]}, "command= too"),
        ({"language": "x", "command": ["cat"]}, r"command=\['cat'\]: expected {file}"),
        ({"language": "x", "command": ["{out}"]}, "expected compile= too, which makes {out}"),
        ({"language": "x", "command": ["sh", "-c", "exec {out}"]}, "expected compile= too"),
        ({"language": "x", "command": ["{out}"], "compile": ["{out}"]}, "expected a compiler and {file}"),
        ({"language": "x", "command": ["{out}"], "compile": ["{out}", "{file}"]}, "expected a compiler and {file}"),
        ({"language": "x", "command": ["{out}"], "compile": ["sh"]}, "expected a compiler and {file}"),
        ({"language": "x", "command": ["no-such-program", "{file}"]}, "not on this machine's PATH"),
        ({"language": "sh", "command": ["sh", "{file}"], "check": "test"}, "only the functions of Python"),
    ],
)
def test_wrong_languages_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        code_reward(isolation="none", **options)
