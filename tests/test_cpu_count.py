"""How many workers a dispatcher starts by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guerdon import _cpu_count as cores_module
from guerdon._cpu_count import default_workers, usable_cores


def test_workers_are_this_process_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores_module, "_quota", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert default_workers() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert default_workers() == 5
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "32")
    assert default_workers() == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "what")
    assert default_workers() == 16


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 16),
        ({"cpu.max": "3200000 100000"}, 16),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        ({}, 16),
    ],
)
def test_a_containers_quota_counts(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(cores_module, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert usable_cores() == cores
