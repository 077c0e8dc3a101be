"""Versions of functions with ``cache=``: a change that may change scores changes the version."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, reward
from guerdon._functions.cache.python_code import PythonCode


class Sources:
    """Modules of a user's own, written and imported anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[str] = set()

    def load(self, name: str, text: str) -> ModuleType:
        (self.folder / f"{name}.py").write_text(textwrap.dedent(text))
        self.written.add(name)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sources]:
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sources = Sources(folder)
    yield sources
    for name in sources.written:
        sys.modules.pop(name, None)


def score(function: Any, folder: Path) -> float:
    with Dispatcher([reward(function, name="graded", lane="thread", cache=folder / "cache")]) as dispatcher:
        return float(dispatcher.score(completions=["a"]).rewards.ravel()[0])


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            """
            import cached_rules

            def a_helper(completion): return cached_rules.other(completion)
            def graded(completion): return cached_rules.rate(completion) + a_helper(completion)
            """,
            id="two functions name one module",
        ),
        pytest.param(
            """
            def graded(completion):
                from cached_rules import rate
                return rate(completion)
            """,
            id="import in the body",
        ),
        pytest.param(
            """
            def graded(completion):
                def inner():
                    import cached_rules as rules
                    return rules.rate(completion)
                return inner()
            """,
            id="import in an inner function",
        ),
        pytest.param(
            """
            import cached_rules
            def graded(completion): return getattr(cached_rules, "rate")(completion)
            """,
            id="getattr",
        ),
        pytest.param(
            """
            import cached_rules
            RULES = {"maths": cached_rules}
            def graded(completion): return RULES["maths"].rate(completion)
            """,
            id="a module as a value",
        ),
        pytest.param(
            """
            import cached_rules
            def rate(completion): return rate.scale
            rate.scale = cached_rules.rate("")
            def graded(completion): return rate(completion)
            """,
            id="an attribute of a function",
        ),
        pytest.param(
            """
            import cached_rules
            class Meta(type):
                def __call__(cls, completion): return cached_rules.rate(completion)
            class Rule(metaclass=Meta): pass
            def graded(completion): return Rule(completion)
            """,
            id="a metaclass",
        ),
        pytest.param(
            """
            import dataclasses
            import cached_rules
            @dataclasses.dataclass
            class Rule:
                scale: float = dataclasses.field(default_factory=lambda: cached_rules.rate(""))
            def graded(completion): return Rule().scale
            """,
            id="a data class",
        ),
        pytest.param(
            """
            import contextlib
            import cached_rules
            @contextlib.contextmanager
            def rule(): yield cached_rules.rate("")
            def graded(completion):
                with rule() as rate:
                    return rate
            """,
            id="a function that a library wraps",
        ),
    ],
)
def test_version_covers_everything_a_function_uses(source: str, sources: Sources, tmp_path: Path) -> None:
    for rate in (1.0, 2.0, 1.0):
        sources.load("cached_rules", f"def rate(completion): return {rate}\ndef other(completion): return 0.0\n")
        graded = sources.load("cached_function", source).graded
        assert score(graded, tmp_path) == rate


@pytest.mark.parametrize(
    ("body", "same"), [("len(completion.rank)", True), ("len(getattr(completion, 'rank'))", False)]
)
def test_an_attribute_is_no_global_of_its_name(body: str, same: bool, sources: Sources) -> None:
    """It counts if it may be read by its name as a text."""

    def digest(rank: int) -> bytes:
        code = PythonCode()
        source = f"rank = {rank}\ndef graded(completion): return {body}\n"
        code.add(sources.load("cached_function", source).graded, "graded")
        return code.digest()

    assert (digest(0) == digest(1)) == same


def test_a_changed_global_is_another_version(tmp_path: Path) -> None:
    scale = 1.0

    def graded(completion: str) -> float:
        return scale

    assert score(graded, tmp_path) == 1.0
    scale = 2.0
    assert score(graded, tmp_path) == 2.0


def test_packages_without_a_version_of_their_own(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their modules often have no ``__version__``: the installed package has."""
    from guerdon._functions.cache import modules

    monkeypatch.setattr(modules, "_installed_folders", lambda: (str(sources.folder),))
    text = "def rate(completion): return {}\n"
    for version, rate in (("1.0", 1.0), ("1.1", 2.0)):
        info = sources.folder / "cached_package-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cached-package\nVersion: {version}\n")
        modules._version.cache_clear()
        sources.load("cached_package", text.format(rate))

        def graded(completion: str) -> float:
            import cached_package  # type: ignore[import-not-found]

            return float(cached_package.rate(completion))

        assert score(graded, tmp_path) == rate
    modules._version.cache_clear()


def test_a_module_that_fails_is_refused(sources: Sources, tmp_path: Path) -> None:
    (sources.folder / "cached_broken.py").write_text("1 / 0\n")

    def graded(completion: str) -> float:
        import cached_broken  # type: ignore[import-not-found]

        return float(cached_broken.rate)

    with pytest.raises(RegistrationError, match=r"imports 'cached_broken', which fails.*Give cache_version="):
        score(graded, tmp_path)
