"""Native rewards give what their originals gave when these rows were recorded.

Each entry names the original; a row is what the factory's columns hold, and its result. Recorded
with CPython 3.11.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guerdon import rewards

ENTRIES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['reward']} {entry['options']}")
def test_results_are_the_recorded_ones(entry: dict[str, Any]) -> None:
    options = dict(entry["options"])
    if "correct" in options:
        options["correct"] = getattr(rewards, options["correct"])()
    reward = getattr(rewards, entry["reward"])(**options)
    columns = {name: [row[index] for row in entry["rows"]] for index, name in enumerate(entry["columns"])}
    columns.setdefault("completions", [""] * len(entry["rows"]))
    found = reward(**columns)
    expected = [row[-1] for row in entry["rows"]]
    if entry["reward"] == "bleu":  # Python 3.12 sums floats in another way
        assert found == pytest.approx(expected, rel=1e-12)
    else:
        assert found == expected
