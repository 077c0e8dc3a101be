"""Print floods: functions that print more than the engine forwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.harness import Scene


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(
            "print_much:64",
            marks=pytest.mark.fault(
                "a function prints 64 MB",
                sees="its value, and 1000 lines a second; the number of dropped lines is reported",
            ),
        ),
        pytest.param(
            "print_without_end_of_line:64",
            marks=pytest.mark.fault(
                "a function prints 64 MB without an end of line",
                sees="its value, and the first 8 KB of the line",
            ),
        ),
    ],
)
def test_much_output_is_read_and_bounded(deed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit(deed) is None
    assert 1 << 10 < len(capfd.readouterr().err) < 16 << 20


@pytest.mark.fault(
    "a function puts objects that raise in place of `sys.stdout` and `sys.stderr`",
    sees="its value; the worker goes on",
)
def test_broken_streams_fail_no_call(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("break_the_streams") is None
