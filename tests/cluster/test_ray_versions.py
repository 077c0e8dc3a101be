"""What must agree between the driver and a node."""

from __future__ import annotations

import pytest

from guerdon._lanes.remote.ray.versions import differences, installed

HERE = {
    "Python": "3.11.2",
    "implementation": "cpython",
    "executable": "/usr/bin/python3",
    "numpy": "2.1.0",
    "cloudpickle": "3.1.0",
    "guerdon": "0.5.0",
}


def test_an_interpreter_agrees_with_itself() -> None:
    assert differences(installed(), installed()) == []


@pytest.mark.parametrize("change", [{"Python": "3.11.9"}, {"numpy": "2.3.1"}, {"cloudpickle": "3.0.0"}])
def test_small_steps_do_no_harm(change: dict[str, str]) -> None:
    assert differences(HERE, {**HERE, **change}) == []


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"Python": "3.12.1"}, "/usr/bin/python3 is cpython 3.12.1, here it is cpython 3.11.2"),
        ({"implementation": "pypy"}, "/usr/bin/python3 is pypy 3.11.2, here it is cpython 3.11.2"),
        ({"guerdon": "0.5.1"}, "it has guerdon 0.5.1, here it is 0.5.0"),
        ({"numpy": "1.26.4"}, "it has numpy 1.26.4, here it is 2.1.0"),
        (
            {"guerdon": "(ModuleNotFoundError: No module named 'guerdon')"},
            "/usr/bin/python3 can't import guerdon (ModuleNotFoundError: No module named 'guerdon')",
        ),
    ],
)
def test_differences_are_clauses(change: dict[str, str], clause: str) -> None:
    assert differences(HERE, {**HERE, **change}) == [clause]
