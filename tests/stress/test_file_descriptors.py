"""File descriptors and folders: functions that close or remove what their worker uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from guerdon import Status
from tests.stress.harness import Scene, expect


@pytest.mark.fault(
    "a function closes all file descriptors and returns",
    sees="its value, from shared memory; the worker is replaced",
)
def test_closing_every_descriptor_loses_nothing(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("close_every_descriptor") is None


@pytest.mark.fault(
    "a function closes all file descriptors and hangs",
    sees="`crashed`, after one more try alone: the worker closed its connection to the engine",
)
def test_closing_every_descriptor_and_hanging_is_seen_at_once(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit("close_every_descriptor:hang"), Status.CRASHED, "closed its connection to the engine")


@pytest.mark.fault(
    "a function writes garbage to every descriptor it can find",
    sees="`crashed`, after one more try alone: its worker sent an invalid message; the garbage is printed as its output",
)
def test_garbage_on_every_descriptor_costs_one_call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit("write_garbage_everywhere"), Status.CRASHED, "was killed: it sent a message")
    assert "[guerdon act " in capfd.readouterr().err


@pytest.mark.fault(
    "a function changes into a folder that is removed",
    sees='its value; later calls in its worker have that working directory too (`isolation="call"` keeps calls apart)',
)
def test_a_worker_without_a_folder_works_on(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("lose_its_folder") is None


@pytest.mark.fault(
    "a function opens files until there are no more descriptors",
    sees="`error`: OSError, too many open files",
)
def test_running_out_of_descriptors_in_a_worker(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit("use_up_descriptors"), Status.ERROR, "Too many open files")
