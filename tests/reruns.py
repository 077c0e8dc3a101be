"""Failed tests that are run again: reported at the end, and not many of them.

The suite kills processes, cuts sockets and fills cores, on machines that are busy with other
things. With ``--reruns`` (what `make` gives) a test fails that fails each time; one that passes
when it is run again is named at the end of the run, as a race to be looked into. More than `MOST`
such tests fail the run.
"""

from __future__ import annotations

from typing import Final

import pytest

MOST: Final = 8


class Reruns:
    """Counts, in the process that reports and in each that runs tests."""

    def __init__(self) -> None:
        self.tests: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if str(report.outcome) == "rerun":
            self.tests.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.tests) > MOST and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests:
            return
        terminalreporter.section(f"run again: {len(self.tests)} tests, at most {MOST} may need it")
        for name in sorted(self.tests):
            terminalreporter.line(name)


def reruns_of(config: pytest.Config) -> Reruns:
    """The counts of this run."""
    plugin = config.pluginmanager.get_plugin("guerdon-reruns")
    assert isinstance(plugin, Reruns)
    return plugin


def register(config: pytest.Config) -> None:
    """Counts from now on."""
    config.pluginmanager.register(Reruns(), "guerdon-reruns")
