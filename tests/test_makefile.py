"""`make` stops with a reason before it installs anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    hidden = ("MAKEFLAGS", "MAKELEVEL", "PYTHON", "PYTHON_CHECKED")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=False, timeout=250
    )


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        ("echo 3.11", None),
        ("echo 3.10", "is Python 3.10. "),
        ("echo 3.14", "is Python 3.14. "),
        ("exit 1", "can't make virtual environments"),
        (None, "there is no such program"),
    ],
)
def test_make_stops_at_a_python_that_it_cannot_use(python: str | None, problem: str | None, tmp_path: Path) -> None:
    given = tmp_path / "python"
    if python is not None:
        program(given, python)
    ended = run(["scripts/check-python", str(tmp_path / "venv")], PYTHON=str(given))
    assert ended.returncode == (problem is not None)
    if problem is not None:
        assert problem in ended.stderr
        assert "Python 3.11 to 3.13: PYTHON=/path/to/python3.12 names the one to use" in ended.stderr
        stopped = run(["make", "setup"], PYTHON=str(given))
        assert stopped.returncode == 2
        assert problem in stopped.stderr
        assert stopped.stdout == ""


@pytest.mark.parametrize(
    ("venv", "says"),
    [
        ("echo 3.11", None),
        ("echo 3.12", "is of Python 3.12: it is made anew"),
        ("echo 3.10", "is of Python 3.10: it is made anew"),
        ("exit 1", "was left half made: it is made anew"),
    ],
)
def test_an_environment_that_cannot_be_used_is_removed(venv: str, says: str | None, tmp_path: Path) -> None:
    program(tmp_path / "venv/bin/python", venv)
    ended = run(["scripts/check-python", str(tmp_path / "venv")], PYTHON=str(program(tmp_path / "python", "echo 3.11")))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "venv").exists() is (says is None)
    assert (says or "") in ended.stdout


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="make refuses this Python")
@pytest.mark.parametrize(("size", "stays"), [(10, True), (9, False)])
def test_an_environment_whose_pip_is_half_written_is_removed(size: int, stays: bool, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=100)
    (packages,) = venv.glob("lib/python*/site-packages")
    for name, text in {
        "pip/__init__.py": "#" * size,
        "pip-1.dist-info/RECORD": "pip/__init__.py,sha256=x,10\n",
    }.items():
        (packages / name).parent.mkdir()
        (packages / name).write_text(text)
    version = "{}.{}".format(*sys.version_info)
    ended = run(["scripts/check-python", str(venv)], PYTHON=str(program(tmp_path / "python", f"echo {version}")))
    assert ended.returncode == 0, ended.stderr
    assert venv.exists() is stays
    assert ("was left half made: it is made anew" in ended.stdout) is not stays


# A Python whose `-m venv` makes an environment with a python of the same kind in it; `FAILS` names
# the module that fails, `uv-pip` the script.
TOOLS = """
case "$1 $2" in
    --version*) echo Python 3.11.9 ;;
    -c*) echo 3.11 ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && [ "$FAILS" != venv ] ;;
    "-m pip") [ "$FAILS" != pip ] ;;
    scripts/uv-pip*) [ "$FAILS" != uv-pip ] ;;
esac
"""


@pytest.mark.parametrize(("fails", "remains"), [("venv", False), ("pip", True), ("uv-pip", True)])
def test_make_goes_on_where_an_installation_failed(fails: str, remains: bool, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    command = ["make", f"VENV={venv}", str(venv / ".installer")]
    python = str(program(tmp_path / "python", TOOLS))
    failed = run(command, PYTHON=python, FAILS=fails)
    assert failed.returncode == 2
    assert "is there a network, and room on the disk (" in failed.stderr
    assert venv.exists() is remains
    assert not (venv / ".installer").exists()
    again = run(command, PYTHON=python, FAILS="")
    assert again.returncode == 0, again.stderr
    assert (venv / ".installer").exists()


def test_an_environment_stays_where_no_python_could_replace_it(tmp_path: Path) -> None:
    program(tmp_path / "venv/bin/python", "echo 3.14")
    nothing = program(tmp_path / "bin/env", "").parent
    for name in ("bash", "dirname", "grep", "sort"):
        (nothing / name).symlink_to(shutil.which(name) or name)
    ended = run(["/bin/bash", "scripts/check-python", str(tmp_path / "venv")], PATH=str(nothing))
    assert ended.returncode == 1
    assert "No Python 3.11 to 3.13 was found" in ended.stderr
    assert (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("cargo", "problem"),
    [
        ("exit 1", "there is no cargo that runs"),  # as rustup's own without a toolchain
        ("echo 'cargo 1.9.0 (abc 2016-05-26)'", "and this is 1.9.0"),
        ("echo 'cargo 1.1000.1-nightly (abc 2099-01-01)'", None),
    ],
)
def test_cargo_is_looked_for(cargo: str, problem: str | None, tmp_path: Path) -> None:
    program(tmp_path / "cargo", cargo)
    ended = run(["make", "check-cargo"], PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (ended.returncode != 0) is (problem is not None), ended.stderr
    if problem is not None:
        assert problem in ended.stderr
        assert "https://rustup.rs" in ended.stderr
