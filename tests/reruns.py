"""A failed test runs once more, alone, when all others have ended; few tests of a run may need it.

The suite kills processes, cuts sockets and fills cores, on machines that are busy with other
things. A failed test runs a second time with ``--run-again`` (`make` gives it), in a process of
its own. If it passes there, the run passes, and a line under the closing one names it: such a test
is a race, or has a deadline that a busy machine misses. If more than `MOST` tests fail, none runs
again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Final

import pytest

MOST: Final = 2
# Hypothesis' own words, and those of tests that draw from a seed.
SEED: Final = re.compile(r"\bseed[ =(]+(\d+)")


@dataclass
class Failure:
    """A test that failed beside others.

    Args:
        report: How it failed.
        load: Of the machine, over the last minute, when it failed.
    """

    report: pytest.TestReport
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def __str__(self) -> str:
        text = "\n".join([self.report.longreprtext, *(content for _, content in self.report.sections)])
        seed = f"seed {found[1]}, " if (found := SEED.search(text)) else ""
        return f"{self.report.nodeid} ({seed}load {self.load:.1f})"


class Reruns:
    """Collects the failures of a run, and runs them again at its end.

    Args:
        arguments: For pytest, beside the test to run.
    """

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._failures: dict[str, Failure] = {}
        self._passed: list[Failure] = []
        # The process of a test died, or a teardown failed, perhaps over something that an earlier
        # test left behind: no second run excuses that.
        self._final = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.setdefault(report.nodeid, Failure(report))
            self._final |= report.when not in ("setup", "call")

    @pytest.hookimpl(trylast=True)  # xdist's own, which ends its processes, comes before
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        failures = list(self._failures.values())
        stopped = session.shouldstop or session.shouldfail or session.exitstatus != pytest.ExitCode.TESTS_FAILED
        if stopped or self._final or len(failures) > MOST:
            return
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(terminal, pytest.TerminalReporter)
        for failure in failures:
            terminal.ensure_newline()
            terminal.section(f"once more, alone: {failure.report.nodeid}")
            terminal.flush()
            command = [sys.executable, "-m", "pytest", *self._arguments, failure.report.nodeid]
            if subprocess.run(command, cwd=session.config.rootpath, check=False).returncode == 0:
                self._passed.append(failure)
                self._move(failure.report, terminal.stats)
        if len(self._passed) == len(failures):
            session.exitstatus = pytest.ExitCode.OK

    @staticmethod
    def _move(report: pytest.TestReport, stats: dict[str, list[pytest.TestReport]]) -> None:
        """Counts a failure as "rerun" in the closing line."""
        kind = "failed" if report.when == "call" else "error"
        stats[kind].remove(report)
        if not stats[kind]:
            del stats[kind]
        stats.setdefault("rerun", []).append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for failure in self._passed:
            terminalreporter.section(f"failed beside others, passed alone: {failure.report.nodeid}")
            terminalreporter.line(failure.report.longreprtext)
        if len(self._failures) > MOST:
            terminalreporter.section(f"{len(self._failures)} tests failed, none ran again: at most {MOST} may need it")

    @pytest.hookimpl(trylast=True)  # under the closing line
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        for failure in self._passed:
            terminal.write_line(f"passed only alone: {failure}")  # type: ignore[union-attr]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-again", action="store_true", help=f"run up to {MOST} failed tests once more, alone")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--run-again") or hasattr(config, "workerinput"):
        return
    arguments = [str(argument) for argument in config.invocation_params.args]
    for left_out in [*config.args, "--run-again", "--record-compatibility"]:
        if left_out in arguments:  # the last: an option before it may have the same value
            del arguments[len(arguments) - 1 - arguments[::-1].index(left_out)]
    if hasattr(config.option, "numprocesses"):
        arguments.append("--numprocesses=0")
    config.pluginmanager.register(Reruns(["--quiet", *arguments]))
