"""The pytest plugin: one test for each function and check; nothing where it is not configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

REWARDS = """
from guerdon import reward

@reward
def exact(completion, answer):
    return float(bool(answer) and completion.strip() == answer)

@reward
def substring(completion, answer):
    return float(answer in completion)
"""
OF_FILE, OF_ROWS = 'guerdon_rewards = ["my_rewards.py"]', 'guerdon_rows = "rows.jsonl"'
ROWS = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 22)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_other.py").write_text("def test_other():\n    pass\n")
    configure(tmp_path, OF_FILE, OF_ROWS)
    return tmp_path


def configure(project: Path, *lines: str) -> None:
    text = "\n".join(["[tool.pytest.ini_options]", 'testpaths = ["tests"]', *lines])
    (project / "pyproject.toml").write_text(text)


def run(project: Path, *arguments: str, installed: bool = False) -> tuple[int, str]:
    """A pytest of its own: the plugin starts engines, and this process has plugins of its own.

    Args:
        installed: It finds this plugin as it finds all others of the environment, which takes
            seconds to import them.
    """
    known = any(point.name == "guerdon" for point in entry_points(group="pytest11"))
    plugin = [] if installed and known else ["-p", "guerdon.testing.plugin"]
    off = [option for name in ("xdist", "cacheprovider", "randomly") for option in ("-p", f"no:{name}")]
    environment = dict(os.environ) if installed else {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *off, *plugin, *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    return done.returncode, done.stdout + done.stderr


def test_each_check_of_each_function_is_a_test(project: Path) -> None:
    code, out = run(project, "--collect-only", "-q", installed=True)
    assert code == 0, out
    assert "tests/test_other.py::test_other" in out
    for function in ("exact", "substring"):
        for check in ("reference", "probes", "order", "process", "survival"):
            assert f"my_rewards.py::{function}::{check}" in out
    assert "rewards.py::exact::exact" not in out


def test_failures_say_what_to_do_and_name_rows(project: Path) -> None:
    configure(project, OF_FILE, OF_ROWS, 'guerdon_checks = ["reference", "probes", "order"]', 'guerdon_timeout = "5"')
    code, out = run(project)
    assert code == 1, out
    assert "1 failed, 6 passed" in out
    assert "my_rewards.py::substring::probes" in out
    assert "error [probe:all_answers] 'substring' rewards a list of many rows' answers" in out
    assert "row 0, '" in out
    assert "Traceback" not in out


def test_paths_on_the_command_line_are_what_runs(project: Path) -> None:
    code, out = run(project, "tests/test_other.py")
    assert code == 0
    assert "1 passed" in out
    code, out = run(project, "my_rewards.py::exact::reference")
    assert code == 0, out
    assert "1 passed" in out


def test_some_functions_of_a_file(project: Path) -> None:
    configure(project, 'guerdon_rewards = ["my_rewards.py:exact"]', OF_ROWS)
    code, out = run(project, "--collect-only", "-q")
    assert code == 0, out
    assert "substring" not in out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([OF_FILE], "guerdon_rewards needs guerdon_rows"),
        (['guerdon_rewards = ["no.py"]', OF_ROWS], "there is no file"),
        *(
            ([OF_FILE, OF_ROWS, line], message)
            for line, message in [
                ('guerdon_checks = ["ordr"]', "there is no check 'ordr'. There are: reference"),
                ('guerdon_timeout = "soon"', "guerdon_timeout = 'soon': expected seconds, more than 0."),
                ('guerdon_timeout = "-1"', "guerdon_timeout = '-1': expected seconds, more than 0."),
                ('guerdon_timeout = "nan"', "guerdon_timeout = 'nan': expected seconds"),
                ('guerdon_timeout = "inf"', "guerdon_timeout = 'inf': expected seconds"),
                ('guerdon_max_rows = "1.5"', "guerdon_max_rows = '1.5': expected a whole number of rows, more than 0."),
                ('guerdon_max_rows = "0"', "guerdon_max_rows = '0': expected a whole number of rows"),
                ('guerdon_probes = "no.json"', "guerdon_probes: there is no file"),
            ]
        ),
        (['guerdon_rewards = [""]', OF_ROWS], "guerdon_rewards"),
        ([OF_FILE, 'guerdon_rows = "no.jsonl"'], "guerdon_rows: there is no file"),
        (['guerdon_rewards = ["my_rewards.py:nothing"]', OF_ROWS], "'nothing'"),
    ],
)
@pytest.mark.fault(
    "the pytest plugin's configuration names what is not there, or no number",
    sees="pytest's usage error, which names the option and its value",
)
def test_a_wrong_configuration_is_refused(project: Path, lines: list[str], message: str) -> None:
    configure(project, *lines)
    code, out = run(project, "-q")
    assert code != 0
    assert message in out
    assert "Traceback" not in out
    assert "INTERNALERROR" not in out


def test_without_a_configuration_nothing_is_imported(project: Path) -> None:
    configure(project)
    (project / "tests" / "test_other.py").write_text(
        "import sys\ndef test_light():\n"
        "    assert not {'numpy', 'cloudpickle', 'guerdon._native', 'guerdon.profile'} & set(sys.modules)\n"
    )
    code, out = run(project, "-q")
    assert code == 0, out
    assert "1 passed" in out


def test_an_assertion_that_fails_shows_the_tests_own_lines(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "from guerdon import reward\n"
        "from guerdon.testing import assert_bounded\n\n"
        "def test_own():\n"
        "    assert_bounded(reward(lambda text: 2.0, name='two'), [{'completion': 'a'}], high=1.0)\n"
    )
    code, out = run(tmp_path, "-p", "no:randomly")
    assert code == 1, out
    assert "'two' gives 2 on row 0" in out
    assert "assertions.py" not in out
    assert "subject.once(Calibration)" not in out
