"""Modules whose file changed since they were imported, and workers that load a changed file."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guerdon import Dispatcher, reward
from guerdon._functions.serialization.importable import importable
from guerdon._functions.serialization.source_check import source_changed

SOURCE = """
import dataclasses, functools
from guerdon import reward
FACTOR = 2.0
def wrapped(function):
    @functools.wraps(function)
    def call(*values): return function(*values)
    return call
@dataclasses.dataclass
class Rule:
    word: str
    def holds(self, text): return self.word in text
    @classmethod
    def make(cls): return cls("a")
@wrapped
def plain(text): return 1.0
@reward
def score(completion): return len(completion) * FACTOR
"""

Load = Callable[[str], types.ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Writes a module and imports it under a name that no other test has."""
    name = f"edited_{os.path.basename(tmp_path)}"
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> types.ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    sys.modules.pop(name, None)


def edit(module: types.ModuleType, old: str, new: str) -> None:
    path = Path(str(module.__file__))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("len(completion) * FACTOR", "len(completion) / FACTOR"),
        ("self.word in text", "self.word == text"),
        ('cls("a")', 'cls("b")'),
        ("return 1.0", "return 3.0"),
        ("FACTOR = 2.0", "FACTOR = 20.0"),
        ("def score", "def score(:"),
    ],
)
def test_a_changed_module_is_not_importable(
    old: str, new: str, compiled: bool, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not compiled)
    module = load(SOURCE)
    # only the compiled file, or an earlier check, shows a changed constant
    if not compiled and "FACTOR = " in old:
        assert not source_changed(module)
    edit(module, old, new)
    assert source_changed(module)
    assert not importable(module.__name__)


def test_a_reload_makes_it_importable_again(load: Load) -> None:
    module = load(SOURCE)
    assert not source_changed(module)
    assert importable(module.__name__)
    edit(module, "2.0", "25.0")
    assert source_changed(module)
    importlib.reload(module)
    assert not source_changed(module)
    assert importable(module.__name__)


def test_workers_run_the_code_of_this_process(load: Load) -> None:
    module = load(SOURCE)
    edit(module, "len(completion) * FACTOR", "1000 / 0")
    with Dispatcher([module.score], workers=1) as made:
        assert made.score(completions=["abc"]).rewards.item() == 6.0
    importlib.reload(module)
    with Dispatcher([module.score], workers=1) as made:
        assert "ZeroDivisionError" in made.submit(completions=["abc"]).result().failures()[0].reason


def test_installed_modules_are_unchanged() -> None:
    for name in ("dataclasses", "pytest", "guerdon._functions.spec", "guerdon.results"):
        assert not source_changed(importlib.import_module(name)), name


def test_a_worker_that_loads_a_changed_file_warns(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    module = load(SOURCE)
    with Dispatcher([module.score], workers=1) as made:
        edit(module, "FACTOR = 2.0", "FACTOR = 20.0")
        assert made.score(completions=["abc"]).rewards.item() == 60.0
    assert f"{module.__file__} was edited after the dispatcher was made" in capfd.readouterr().err


def test_there_is_no_warning_for_unchanged_files(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    module = load(SOURCE)
    with Dispatcher([module.score, reward(module.plain)], workers=1) as made:
        assert made.score(completions=["abc"]).rewards.ravel().tolist() == [6.0, 1.0]
    assert "edited" not in capfd.readouterr().err
