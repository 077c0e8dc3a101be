"""Where the ranks of a host meet: who may be there, and what killed processes leave."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from guerdon._lanes.remote.shared_engine.meeting import JoinError, Meeting, meeting_of, remove_stale

LAUNCH = {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a run"}


@pytest.fixture
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    # short: paths of sockets have a bound
    return {**LAUNCH, "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("r"))}


@pytest.fixture
def meeting(environ: dict[str, str]) -> Meeting:
    return meeting_of(b"functions", ["f"], environ)


def test_ranks_of_a_launch_with_the_same_functions_meet(environ: dict[str, str]) -> None:
    first = meeting_of(b"functions", ["f"], environ)
    assert meeting_of(b"functions", ["f"], {**environ, "LOCAL_RANK": "1", "RANK": "1"}) == first
    assert meeting_of(b"others", ["f"], environ) != first
    assert meeting_of(b"functions", ["g"], environ) != first
    assert meeting_of(b"functions", ["f"], {**environ, "TORCHELASTIC_RUN_ID": "another run"}) != first
    assert stat.S_IMODE(os.stat(first.lock.parent).st_mode) == 0o700
    assert first.lock.parent == Path(environ["XDG_RUNTIME_DIR"]) / "guerdon"


@pytest.mark.parametrize(
    "which",
    [
        {"SLURM_STEP_ID": "2", "SLURM_STEPID": "2"},
        {"SLURM_STEPID": "2"},
        {"PMIX_NAMESPACE": "prterun-host-1234@1"},
        {"PALS_APID": "0b5c"},
        {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29501"},
    ],
    ids=["step", "step of an older Slurm", "mpirun", "pals", "torchrun"],
)
def test_launches_of_one_slurm_job_do_not_meet(environ: dict[str, str], which: dict[str, str]) -> None:
    def meeting(**more: str) -> Meeting:
        return meeting_of(b"functions", ["f"], {"XDG_RUNTIME_DIR": environ["XDG_RUNTIME_DIR"], **more})

    job = {"SLURM_JOB_ID": "17", "SLURM_LOCALID": "0", "SLURM_PROCID": "0"}
    one = {**job, **which}
    other = {name: "none" if value == "none" else value + "3" for name, value in which.items()}
    assert meeting(**one) == meeting(**{**one, "SLURM_LOCALID": "1", "SLURM_PROCID": "1"})
    assert len({meeting(**one), meeting(**job), meeting(**job, **other)}) == 3
    # What the user or torchrun names is one launch, whatever it consists of.
    for named in ({"GUERDON_RUN_ID": "mine"}, {**which, "TORCHELASTIC_RUN_ID": "a"}):
        assert meeting(**{**one, **named}) == meeting(**{**job, **other, **named})


def test_a_folder_that_others_can_enter_will_not_do(
    environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # short: paths have a bound
    open_to_all, other = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    (open_to_all / "guerdon").mkdir()
    os.chmod(open_to_all / "guerdon", 0o755)
    monkeypatch.setattr("guerdon._system.socket_folders.tempfile.gettempdir", lambda: str(other))
    meeting = meeting_of(b"functions", ["f"], {**environ, "XDG_RUNTIME_DIR": str(open_to_all)})
    assert meeting.lock.parent == other / f"guerdon-{os.getuid()}"


def test_no_folder_at_all_is_reported(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("guerdon._system.socket_folders.tempfile.gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(JoinError, match="Not a directory"):
        meeting_of(b"functions", ["f"], {**environ, "XDG_RUNTIME_DIR": str(tmp_path / "file")})


@pytest.mark.fault(
    "a container in which no folder can be written, so that there is none for sockets",
    sees='workers of its own with one warning, for `cluster="host"`; `guerdon top` does not show the dispatcher',
)
def test_no_folder_for_temporary_files_is_reported(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("guerdon._system.socket_folders.tempfile.gettempdir", no_folder)
    assert meeting_of(b"functions", ["f"], environ).lock.parent == Path(environ["XDG_RUNTIME_DIR"]) / "guerdon"
    with pytest.raises(JoinError, match="no folder for temporary files that can be written: set TMPDIR"):
        meeting_of(b"functions", ["f"], LAUNCH)


def test_a_path_that_is_too_long_for_a_socket_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr("guerdon._system.socket_folders.tempfile.gettempdir", lambda: str(deep))
    with pytest.raises(JoinError, match="too long for a socket"):
        meeting_of(b"functions", ["f"], {**LAUNCH, "XDG_RUNTIME_DIR": str(deep)})


def test_one_at_a_time_has_the_lock(meeting: Meeting) -> None:
    inside, most, done = 0, 0, []

    def enter() -> None:
        nonlocal inside, most
        with meeting.locked():
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1
        done.append(1)

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, len(done)) == (1, 8)


def test_a_lock_that_nobody_gives_back_is_not_waited_for(meeting: Meeting) -> None:
    with meeting.locked(), pytest.raises(JoinError, match="holds the lock"), meeting.locked(0.05):
        pass


def test_the_lock_of_a_process_that_died_is_free(meeting: Meeting) -> None:
    child = os.fork()
    if child == 0:
        with meeting.locked():
            os._exit(0)
    os.waitpid(child, 0)
    with meeting.locked(0.0):
        pass


def test_a_child_that_was_forked_under_the_lock_does_not_keep_it(meeting: Meeting) -> None:
    with meeting.locked():
        ended, ending = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ending)
            os.read(ended, 1)
            os._exit(0)
    with meeting.locked(0.0):
        pass
    os.close(ending)
    os.close(ended)
    os.waitpid(child, 0)


def test_a_lock_on_a_removed_file_is_no_lock(meeting: Meeting) -> None:
    entered = threading.Event()

    def wait_for_it() -> None:
        with meeting.locked():
            entered.set()
            assert meeting.lock.exists()

    with meeting.locked():
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        time.sleep(0.05)
        assert not entered.is_set()
        meeting.remove()
    thread.join()
    assert entered.is_set()


def test_files_of_a_killed_engine_are_removed_and_those_in_use_stay(meeting: Meeting) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(meeting.socket))
        listener.listen()
        with meeting.locked():
            pass
        assert not meeting.remove_if_stale()
    assert meeting.socket.exists()
    descriptor = os.open(meeting.lock, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # somebody is starting one
    remove_stale(meeting.lock.parent)
    assert meeting.socket.exists()
    os.close(descriptor)
    remove_stale(meeting.lock.parent)
    assert list(meeting.lock.parent.iterdir()) == []
