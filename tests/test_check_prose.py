"""The check of prose, `scripts/check-prose`, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/check-prose"

RUST = """\
//! The grid holds one cell a sample.
//!
//! - grid-1  A cell is filled once.

/// Whether the cell
/// is filled.
pub struct Cell;

fn fill() -> &'static str {
    // grid-1 holds here. `What is CODE` is not read.
    "// What a string has."
}
"""
PYTHON = '''\
"""Reads the grid (grid-1)."""


class Grid:
    """What a grid has.

    Args:
        cell: What an argument is.
    """


def NAME() -> None:
    text = """# What a string has."""
    assert text  # To be sure of it.
'''


@pytest.fixture
def check(tmp_path: Path):
    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, tmp_path / "scripts/check-prose", *arguments], capture_output=True, text=True, timeout=60
        )
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    for name, text in {
        "rust/core/src/grid.rs": RUST,
        "python/guerdon/grid.py": PYTHON.replace("NAME", "test_what_a_cell_has"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    run.root = tmp_path  # type: ignore[attr-defined]
    return run


def record(root: Path, what: int) -> None:
    (root / "scripts/prose.toml").write_text(
        "# The numbers.\n"
        f"[Rust]\nopens-with-what = {what}\n[Python]\nopens-with-what = 1\nopens-without-subject = 1\ntest-names = 1\n"
    )


def test_counts_pass_up_to_the_record(check) -> None:
    record(check.root, 1)
    assert check() == (0, "")


def test_a_count_above_the_record_fails(check) -> None:
    record(check.root, 0)
    code, output = check("--record")
    assert code == 1
    assert output.startswith("opens-with-what: 1 in Rust, 0 recorded")
    assert check()[0] == 1, "the record was raised"


def test_record_lowers_to_the_counts(check) -> None:
    record(check.root, 7)
    assert check("--record")[0] == 0
    text = (check.root / "scripts/prose.toml").read_text()
    assert text.startswith("# The numbers.\n[Rust]\nopens-with-what = 1\n")
    assert check() == (0, "")


def test_list_names_the_places_of_a_pattern(check) -> None:
    record(check.root, 1)
    assert check("--list", "opens-with-what", str(check.root / "rust")) == (
        0,
        "rust/core/src/grid.rs:5: Whether the cell is filled.\n",
    )
    assert check("--list", "test-names")[1] == "python/guerdon/grid.py:12: def test_what_a_cell_has() -> None:\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("wide.rs", "// " + "word " * 20, "wide.rs:1: a comment of 103 columns (at most 100)"),
        ("head.rs", "//! A line.\n" * 9, "head.rs:1: a module's head of 9 lines (at most 8)"),
        ("old.py", "# See S-1.\n", "old.py:1: S-1: an invariant is numbered like scheduler-1"),
        ("lost.py", "# See grid-2 too.\n", "lost.py:1: grid-2 is defined nowhere"),
        ("alone.rs", "//! - cell-1  It is filled.\n", "alone.rs:1: cell-1: no test and no other module cites it"),
        ("rust/core/src/other.rs", "pub enum Cell {}\n", "other.rs:1: Cell: rust/core/src/grid.rs:7 has a type of"),
    ],
)
def test_a_comment_of_a_wrong_form_fails(check, name: str, text: str, message: str) -> None:
    record(check.root, 1)
    (check.root / name).write_text(text)
    code, output = check()
    assert code == 1
    assert message in output


PACKAGE = Path(__file__).parents[1] / "python" / "guerdon"
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
# Their frameworks want tensors.
TORCH = ("guerdon.integrations.nemo_rl", "guerdon.integrations.openrlhf")


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    if module in TORCH:
        pytest.importorskip("torch")
    loaded = importlib.import_module(module)
    results = doctest.testmod(loaded, extraglobs={"__name__": "__main__"}, raise_on_error=False)
    assert results.attempted > 0
    assert results.failed == 0
