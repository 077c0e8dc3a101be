"""Forged messages: workers that send or write what no worker of ours does."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import pytest

from guerdon import Status
from tests.stress.harness import Scene, expect, wait_for

F_SEAL_FUTURE_WRITE = 0x10  # Python's fcntl has no name for it


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        pytest.param(
            "announce_four_gigabytes",
            "it sent a message of 4294967295 bytes, which is too large",
            marks=pytest.mark.fault(
                "a worker announces a message of 4 GiB",
                sees="`crashed`, after one more try alone; no memory is allocated for it",
            ),
        ),
        pytest.param(
            "answer_for_an_unknown_frame",
            "a message about a call that it does not run",
            marks=pytest.mark.fault("a worker reports on a frame it never got", sees="`crashed`, its call only"),
        ),
    ],
)
def test_a_forged_message_ends_the_worker(deed: str, reason: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit(deed), Status.CRASHED, reason)


@pytest.mark.fault(
    "a function opens the pages of all workers under `/proc/<trainer>/fd` to write values of other calls",
    sees="its own value: the pages are sealed against it",
)
def test_other_workers_pages_can_not_be_written(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        scene.expect_whole()  # all workers are there, if not ready
        wait_for(_pages_are_sealed, "all workers are ready")
        result = scene.score([f"forge_pages:{os.getpid()}"] * 4)
        assert result.rewards.ravel().tolist() == [0.0] * 4
        scene.expect_whole()


def _pages_are_sealed() -> bool:
    """Each worker seals its page as it starts."""
    seals = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if "guerdon-page" in os.readlink(f"/proc/self/fd/{name}"):
                seals.append(fcntl.fcntl(int(name), fcntl.F_GET_SEALS))
    return bool(seals) and all(found & F_SEAL_FUTURE_WRITE for found in seals)


@pytest.mark.fault("a worker sends messages without end", sees="`timeout`, in time")
def test_endless_messages_end_in_a_timeout(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        expect(scene.commit("talk_without_end"), Status.TIMEOUT, "of 3 s")
