"""The total reward in a diff: each side by what its dispatcher made of failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, reward
from tests.journal_files import row, write_journal


@pytest.mark.parametrize(
    ("then", "now", "differ"), [("sum", "sum", 0), ("drop", "drop", 0), ("drop", "sum", 1), ("sum", "drop", 1)]
)
def test_totals_of_then_are_those_of_the_dispatcher_of_then(tmp_path: Path, then: str, now: Any, differ: int) -> None:
    """A function fails on one sample of four, then and now."""
    rows = [
        row(sample=sample, function=name, value=1.0, prompt="p", completion=str(sample))
        for sample in range(4)
        for name in ("one", "broken")
    ]
    rows[-1] |= {"status": "error", "value": None, "reward": None, "reason": "ValueError: no"}
    journal = write_journal(tmp_path / "j", rows, texts=True, dispatcher={"incomplete": then})

    def broken(completion: str) -> float:
        if completion == "3":
            raise ValueError("no")
        return 1.0

    functions = [reward(lambda text: 1.0, name="one", lane="thread"), reward(broken, name="broken", lane="thread")]
    dispatcher = Dispatcher(functions, incomplete=now, max_failure_rate=1.0)
    found = guerdon.replay(journal, dispatcher)
    assert found.differences == 0
    assert found.total["compared"] > 0
    assert found.total["moved"] == differ
