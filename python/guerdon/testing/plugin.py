"""The pytest plugin: each check of `guerdon profile` is a test of each function that pytest's
configuration names. It does nothing and imports nothing if there is no ``guerdon_rewards`` there.

::

    [tool.pytest.ini_options]
    guerdon_rewards = ["rewards.py"]
    guerdon_rows = "data/sample.jsonl"
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from guerdon.profile.check import Check
    from guerdon.profile.subject import Subject

__all__ = ["CheckItem", "FunctionCollector", "RewardsFile"]

REWARDS, ROWS, REFERENCE, ANSWER = "guerdon_rewards", "guerdon_rows", "guerdon_reference", "guerdon_answer"
PROBES, CHECKS, TIMEOUT, MAX_ROWS = "guerdon_probes", "guerdon_checks", "guerdon_timeout", "guerdon_max_rows"
MOST_ROWS: Final = 64


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        REWARDS, "files of reward functions to check, relative to this file; file.py:a,b names some", "linelist"
    )
    parser.addini(ROWS, "JSONL or Parquet file with rows for them")
    parser.addini(REFERENCE, "template of a completion that must score, with columns in braces")
    parser.addini(ANSWER, "column of the right answers")
    parser.addini(PROBES, "JSON file with more probes")
    parser.addini(CHECKS, "the checks to run (default: all)", "linelist")
    parser.addini(TIMEOUT, "seconds of one call of a function")
    parser.addini(MAX_ROWS, f"rows to read (default: {MOST_ROWS})")


def pytest_configure(config: pytest.Config) -> None:
    """Configured files are collected in every run that names no paths."""
    rewards = config.getini(REWARDS)
    if not rewards:
        return
    if not config.getini(ROWS):
        raise pytest.UsageError(f"{REWARDS} needs {ROWS}: a JSONL or Parquet file with prompts and columns.")
    for name, kind in ((TIMEOUT, "seconds"), (MAX_ROWS, "rows")):
        _number(config, name, kind)
    missing = [str(path) for path in _files(config) if not path.is_file()]
    if missing:
        raise pytest.UsageError(f"{REWARDS}: there is no file {missing[0]}.")
    for name in (ROWS, PROBES):
        given = config.getini(name)
        if given and not _path(config, given).is_file():
            raise pytest.UsageError(f"{name}: there is no file {_path(config, given)}.")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args.extend(str(path) for path in _files(config) if str(path) not in config.args)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if parent.config.getini(REWARDS) and file_path in _files(parent.config):
        collector: RewardsFile = RewardsFile.from_parent(parent, path=file_path)
        return collector
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file that is collected for its rewards alone is not a module of tests."""
    if not parent.config.getini(REWARDS) or module_path not in _files(parent.config):
        return None
    patterns = parent.config.getini("python_files")
    if any(module_path.match(pattern) for pattern in patterns):
        return None
    nothing: _NoTests = _NoTests.from_parent(parent, path=module_path)
    return nothing


class _NoTests(pytest.File):
    def collect(self) -> list[pytest.Item]:
        return []


class RewardsFile(pytest.File):
    """A configured file: its functions."""

    def collect(self) -> Iterator[FunctionCollector]:
        from guerdon.errors import GuerdonError
        from guerdon.profile.exit_codes import UsageError
        from guerdon.profile.load_rewards import load

        for text in self.config.getini(REWARDS):
            if _path(self.config, text) != self.path:
                continue
            names = text.partition(".py:")[2]
            try:
                with load(f"{self.path}:{names}" if names else str(self.path)) as dispatcher:
                    items = [spec.item for spec in dispatcher._specs]
            except (UsageError, GuerdonError) as error:
                raise self.CollectError(str(error)) from None
            for item in items:
                name = getattr(item, "name", None) or getattr(item, "__name__", type(item).__name__)
                yield FunctionCollector.from_parent(self, name=str(name), function=item)


class FunctionCollector(pytest.Collector):
    """A reward function: its checks, which share one subject."""

    def __init__(self, *, function: object, **given: Any) -> None:
        super().__init__(**given)
        self.function = function
        self._subject: Subject | None = None

    def collect(self) -> Iterator[CheckItem]:
        from guerdon.profile.checks import CHECKS as ALL

        wanted = self.config.getini(CHECKS)
        unknown = set(wanted) - {check.id for check in ALL}
        if unknown:
            known = ", ".join(check.id for check in ALL)
            raise self.CollectError(f"{CHECKS}: there is no check {sorted(unknown)[0]!r}. There are: {known}.")
        for check in ALL:
            if not wanted or check.id in wanted:
                yield CheckItem.from_parent(self, name=check.id, check=check)

    @property
    def subject(self) -> Subject:
        """The function with its rows."""
        if self._subject is None:
            from guerdon.profile.probes import load_probes
            from guerdon.profile.subject import Subject

            options = self.config
            self._subject = Subject(
                self.function,
                _rows(options),
                timeout=_number(options, TIMEOUT, "seconds"),
                reference=options.getini(REFERENCE) or None,
                answer=options.getini(ANSWER) or None,
                probes=load_probes(_path(options, probes)) if (probes := options.getini(PROBES)) else None,
            )
        return self._subject

    def teardown(self) -> None:
        if self._subject is not None:
            self._subject.close()
            self._subject = None


class _Found(AssertionError):
    """The findings of a check, as its failure shows them."""


class CheckItem(pytest.Item):
    """One check of one function."""

    def __init__(self, *, check: Check, **given: Any) -> None:
        super().__init__(**given)
        self.check = check

    def runtest(self) -> None:
        from guerdon.profile.finding import counted

        assert isinstance(self.parent, FunctionCollector)
        findings = list(self.check.run(self.parent.subject))
        bad = counted(findings)
        known = [finding for finding in findings if finding not in bad]
        if known:
            self.add_report_section("call", "guerdon", "\n".join(map(str, known)))
        if bad:
            raise _Found("\n".join(map(str, bad)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from guerdon.errors import GuerdonError

        if isinstance(excinfo.value, (_Found, GuerdonError)):
            return f"{self.check.asks}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        assert self.parent is not None
        return self.path, None, f"{self.parent.name}: {self.name}"


def _files(config: pytest.Config) -> list[Path]:
    return [_path(config, text) for text in config.getini(REWARDS)]


def _path(config: pytest.Config, text: str) -> Path:
    """The file of one entry, ``file.py`` or ``file.py:a,b``."""
    place, mark, _ = text.partition(".py:")
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    return (folder / (place + (".py" if mark else ""))).resolve()


def _number(config: pytest.Config, name: str, kind: str) -> float | None:
    """The number that an option gives; None without one.

    Raises:
        pytest.UsageError: It is none that can work.
    """
    text = str(config.getini(name)).strip()
    if not text:
        return None
    try:
        number = float(int(text)) if kind == "rows" else float(text)
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        whole = "a whole number of " if kind == "rows" else ""
        raise pytest.UsageError(f"{name} = {text!r}: expected {whole}{kind}, more than 0.")
    return number


def _rows(config: pytest.Config) -> list[dict[str, Any]]:
    from itertools import islice

    from guerdon.profile.input_rows import open_input

    source = open_input(str(_path(config, config.getini(ROWS))))
    try:
        return [row.fields for row in islice(source.rows(), int(_number(config, MAX_ROWS, "rows") or MOST_ROWS))]
    finally:
        source.close()
