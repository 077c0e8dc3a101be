"""What `make` says before it installs anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.mark.parametrize(
    ("cargo", "problem"),
    [
        ("exit 1", "there is no cargo that runs"),  # as rustup's own without a toolchain
        ("echo 'cargo 1.9.0 (abc 2016-05-26)'", "and this is 1.9.0"),
        ("echo 'cargo 1.1000.1-nightly (abc 2099-01-01)'", None),
    ],
)
def test_cargo_is_looked_for(cargo: str, problem: str | None, tmp_path: Path) -> None:
    found = tmp_path / "cargo"
    found.write_text(f"#!/bin/sh\n{cargo}\n")
    found.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    ended = subprocess.run(
        ["make", "check-cargo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=250
    )
    assert (ended.returncode != 0) is (problem is not None), ended.stderr
    if problem is not None:
        assert problem in ended.stderr
        assert "https://rustup.rs" in ended.stderr
