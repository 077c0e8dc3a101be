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
        pytest.param(
            "answer_for_an_unknown_call",
            "a message about a call that it does not run",
            marks=pytest.mark.fault("a worker reports on a call it never got", sees="`crashed`, its call only"),
        ),
    ],
)
def test_a_forged_message_ends_the_worker(deed: str, reason: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit(deed), Status.CRASHED, reason)


@pytest.mark.fault(
    "a message of a worker is cut in two and its end never comes; the call hangs",
    sees="`timeout`",
)
def test_a_truncated_message_before_a_hang(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        expect(scene.commit("send_half_a_message:hang"), Status.TIMEOUT, "of 3 s")


@pytest.mark.fault(
    "a message of a worker is cut in two and the next one follows at once",
    sees="its value, from shared memory; the worker is replaced",
)
def test_half_a_message_loses_nothing(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("send_half_a_message") is None


@pytest.mark.fault("a result is sent twice", sees="the first counts")
def test_a_repeated_result_counts_once(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        expect(scene.commit("fail_twice"), Status.ERROR, "twice")


@pytest.mark.fault(
    "a worker reports the end of a frame twice, while a call runs",
    sees="`crashed`, its call only: the shared page does not confirm the end",
)
def test_a_repeated_frame_end_ends_the_worker(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        result = scene.score(["give:1", "give:2", "say_done_twice", "give:3"])
        assert result.rewards[[0, 1, 3], 0, 0].tolist() == [1, 2, 3]
        assert result.failures()[0].sample == 2
        scene.expect_whole()


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            "done",
            marks=pytest.mark.fault(
                "garbage in the shared page where finished frames are counted, and a hang", sees="`timeout`"
            ),
        ),
        pytest.param(
            "progress",
            marks=pytest.mark.fault(
                "garbage in the shared page where the current call is, and a hang",
                sees="`timeout`: the current call is also known from elsewhere in the page",
            ),
        ),
    ],
)
def test_garbage_in_the_shared_page(what: str, tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        expect(scene.commit(f"scribble_over_the_page:{what}"), Status.TIMEOUT, "of 3 s")


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


@pytest.mark.fault(
    "a worker alternates between two calls in the shared page for ever",
    sees="some value or failure for these calls; the worker is replaced",
)
def test_a_worker_that_goes_to_and_fro_is_replaced(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        scene.score(["give:1", "go_to_and_fro", "give:2", "give:3"] * 2)
        wait_for(lambda: scene.dispatcher.stats()["worker_restarts"], "the liar was replaced")
        scene.expect_whole()
