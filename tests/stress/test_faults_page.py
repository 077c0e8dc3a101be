"""docs/internals/faults.md is what the marks on the tests say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_faults_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "faults-table"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    page = (ROOT / "docs" / "internals" / "faults.md").read_text(encoding="utf-8")
    assert page == made.stdout, "the marks have changed: scripts/faults-table >docs/internals/faults.md"
