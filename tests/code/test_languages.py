"""Programs of other languages: compiled and run behind the same fences."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, RegistrationError, code_reward
from guerdon.rewards.code.zygote.readable_tools import beside
from guerdon.rewards.code.zygote.unfenced_folder import unfenced_folder
from tests.code.programs import CASES, block, in_process, judged

CPP = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n + 1 << std::endl; }"
HANGS = (
    "#include <iostream>\nint main() { int n; std::cin >> n; volatile int m = n; while (m == 1); std::cout << n + 1; }"
)
CPP_BY_NAME = (
    '#include <cstdio>\nint main() { freopen("/dev/stdin", "r", stdin); int a; scanf("%d", &a); printf("%d", a + 1); }'
)
JAVASCRIPT = "const n = Number(require('fs').readFileSync(0, 'utf8'));\nconsole.log(n + 1);"
JAVASCRIPT_BY_NAME = "console.log(require('fs').readFileSync('/dev/stdin', 'utf8').length);"
SHELL = "read n\necho $((n + 1))"


def needs(*commands: str) -> Any:
    missing = [command for command in commands if shutil.which(command) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {' or '.join(missing)}")


@needs("g++")
def test_cpp() -> None:
    with judged(language="cpp", score="share", case_timeout=1.0, timeout=20) as reward:
        assert reward(completions=[block(CPP, "cpp"), block(CPP, "C++"), block(CPP)], cases=[CASES] * 3) == [1, 1, 0]
        assert reward(completions=[block(CPP_BY_NAME, "cpp")], cases=[CASES]) == [1]
        found = reward._judge.judge({"completion": block("int main() { return x; }", "cpp"), "cases": CASES})
        assert found.score == 0.0
        assert "it does not compile: ./program.cpp:1" in found.reason
        found = reward._judge.judge({"completion": block(HANGS, "cpp"), "cases": CASES})
        assert (found.passed, found.reason) == (1, "case 0: it did not end within 1 s")
        crash = "#include <cstdlib>\nint main() { abort(); }"
        found = reward._judge.judge({"completion": block(crash, "cpp"), "cases": CASES})
        assert "ended by SIG" in found.reason


@needs("g++")
def test_a_compiler_is_tried_by_its_own_standard() -> None:
    old = "#include <iostream>\nint main() { std::cout << 2 << std::endl; return 0; }"
    with judged(language="cpp", command=["{out}"], compile=["g++", "-std=c++98", "-o", "{out}", "{file}"]) as reward:
        assert reward(completions=[block(old, "cpp")], cases=[[{"stdin": "", "stdout": "2"}]]) == [1]


@needs("node")
def test_javascript_has_the_memory_that_it_needs() -> None:
    lengths = [{"stdin": "1" * 300_000, "stdout": "300000"}, {"stdin": "12", "stdout": "2"}]
    with judged(language="javascript", command=["node", "{file}"]) as reward:
        assert reward(completions=[block(JAVASCRIPT, "js")], cases=[CASES]) == [1]
    with judged(language="javascript", timeout=20) as reward:
        assert reward(completions=[block(JAVASCRIPT_BY_NAME, "javascript")], cases=[lengths]) == [1]


def test_any_command() -> None:
    with judged(language="sh", command=["sh", "{file}"]) as reward:
        assert reward(completions=[block(SHELL, "sh"), block("exit 3", "sh")], cases=[CASES] * 2) == [1, 0]
        assert "exit status 3" in reward._judge.judge({"completion": block("exit 3", "sh"), "cases": CASES}).reason
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


def test_functions_are_for_python() -> None:
    with judged(language="sh", command=["sh", "{file}"]) as reward, pytest.raises(DataError, match="not for sh"):
        reward._judge.judge({"completion": block("x", "sh"), "cases": [{"fn": "f", "expected": 1}]})


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


def test_an_executable_opens_its_own_folder_and_what_is_installed_with_it(tmp_path: Path) -> None:
    for name in ("bin", "lib", "include", "share", "src", "x86_64-conda-linux-gnu", "secrets"):
        (tmp_path / "prefix" / name).mkdir(parents=True)
    tool = tmp_path / "prefix" / "bin" / "tool"
    tool.write_text("")
    (tmp_path / "tool").symlink_to(tool)
    opened = ("bin", "include", "lib", "share", "x86_64-conda-linux-gnu")
    assert sorted(beside(str(tmp_path / "tool"))) == [str(tmp_path / "prefix" / name) for name in opened]
    other = tmp_path / "project" / "tools" / "tool"
    other.parent.mkdir(parents=True)
    other.write_text("")
    assert beside(str(other)) == [str(other.parent)]
    # A tree of Go, or a JDK, is all the tool's.
    (tmp_path / "prefix" / "pkg" / "tool").mkdir(parents=True)
    assert sorted(beside(str(tool))) == [str(tmp_path / "prefix"), str(tmp_path / "prefix" / "bin")]


def test_of_a_folder_with_much_else_in_it_only_the_executable_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in ("bin", "lib", ".local/bin", ".local/lib", ".local/share", "work/here"):
        (home / name).mkdir(parents=True)
    tools = [home / name for name in ("tool", "bin/tool", ".local/bin/tool", "work/tool")]
    for tool in tools:
        tool.write_text("")
    other = tmp_path / "other" / "tool"
    other.parent.mkdir()
    other.write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "work" / "here")
    assert beside(str(other)) == [str(other)], "another's home"
    assert beside(str(tools[0])) == [str(tools[0])], "a home"
    assert beside(str(tools[1])) == [str(home / "bin")], "the folder above is a home"
    assert beside(str(tools[2])) == [str(home / ".local/bin"), str(home / ".local/lib")], "not its keys"
    assert beside(str(tools[3])) == [str(tools[3])], "what this process works in"
    assert beside("/no-such-executable") == ["/no-such-executable"], "the root"
    (home / "work" / "here").rmdir()
    assert beside(str(home / ".local/bin/tool")) == [str(home / ".local/bin/tool")], "where this process works is gone"
    monkeypatch.undo()
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        assert beside(file.name) == [file.name], "temporary files of everybody"


@pytest.mark.parametrize("place", ["/tmp", "project/tools"])
def test_a_tool_of_ones_own_runs_and_shows_nothing_else(tmp_path: Path, place: str) -> None:
    """As a user that programs are not, in no folder that is closed to others."""
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        base.chmod(0o755)
        folder = Path(place) if place == "/tmp" else base / place
        folder.mkdir(parents=True, exist_ok=True)
        (base / "secret").write_text("secret")
        fd, tool = tempfile.mkstemp(dir=folder)
        stack.callback(os.unlink, tool)
        with open(fd, "wb") as file:
            file.write(Path("/bin/sh").read_bytes())
        os.chmod(tool, 0o755)
        program = f"cat {base}/secret 2>/dev/null\nls /tmp {base} 2>/dev/null | grep -c secret\n{SHELL}"
        with judged(language="sh", command=[tool, "{file}"]) as reward:
            cases = [{"stdin": "1\n", "stdout": "0\n2\n"}]
            found = reward._judge.judge({"completion": block(program, "sh"), "cases": cases})
            assert (found.score, found.reason) == (1.0, "")


@pytest.mark.fault(
    "a zygote without fences is killed, so that its folder is left", sees="the next one removes it; others stay"
)
def test_folders_that_were_left_are_removed_and_those_in_use_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "guerdon-code-run-left" / "own"
    left.mkdir(parents=True)
    (left / "program.sh").write_text("")
    (tmp_path / "another").mkdir()
    with unfenced_folder() as first, unfenced_folder() as second:
        os.mkdir(first)
        Path(first, "program.sh").write_text("")
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"another", *(Path(one).parent.name for one in (first, second))}
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_a_killed_zygote_leaves_nothing_for_long() -> None:
    def folders(process: Any) -> set[str]:
        fds = Path(f"/proc/{process.pid}/fd")
        return {path for path in map(os.readlink, fds.iterdir()) if "/guerdon-code-run-" in path}

    with judged(language="sh", command=["sh", "{file}"], isolation="none") as reward:
        scorer = in_process(reward)
        assert reward(completions=[block(SHELL, "sh")], cases=[CASES]) == [1]
        assert scorer._zygote is not None
        process = scorer._zygote._process
        assert process is not None
        (left,) = folders(process)
        process.kill()
        process.wait()
        assert os.path.isdir(left)
        assert reward(completions=[block(SHELL, "sh")], cases=[CASES]) == [1]
        (used,) = folders(scorer._zygote._process)
        assert os.path.isdir(used)
        assert not os.path.exists(left)
    assert not os.path.exists(used)
