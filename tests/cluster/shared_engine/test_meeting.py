"""The meeting place of a host's ranks: its users, the first record of a connection, the digest of
functions, and the remains of killed processes."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from guerdon._lanes.remote.shared_engine import greeting
from guerdon._lanes.remote.shared_engine.meeting import JoinError, Meeting, meeting_of, remove_stale
from guerdon._system import cpu_count, launcher
from tests.processes import run_python

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


@pytest.mark.parametrize(("name", "reason"), [("file", "Not a directory"), ("x" * 90, "too long for a socket")])
def test_folders_that_cannot_have_sockets_are_reported(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.touch() if name == "file" else folder.mkdir()
    monkeypatch.setattr("guerdon._system.socket_folders.tempfile.gettempdir", lambda: str(folder))
    with pytest.raises(JoinError, match=reason):
        meeting_of(b"functions", ["f"], {**LAUNCH, "XDG_RUNTIME_DIR": str(folder)})


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


def test_a_lock_that_nobody_gives_back_is_not_waited_for(meeting: Meeting) -> None:
    with meeting.locked(), pytest.raises(JoinError, match="holds the lock"), meeting.locked(0.05):
        pass


def test_a_lock_ends_with_its_process_and_a_child_that_was_forked_under_it_does_not_keep_it(meeting: Meeting) -> None:
    child = os.fork()
    if child == 0:
        with meeting.locked():
            os._exit(0)
    os.waitpid(child, 0)
    with meeting.locked(0.0):
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


NOBODY = 2**32 - 2


class OtherUser:
    """A connection whose other end is a process of a user with a high number."""

    def __init__(self, user: int) -> None:
        self._user = user

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        return struct.pack("=iII", os.getpid(), self._user, self._user)


def test_users_have_numbers_up_to_two_to_the_32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert greeting.peer_of(OtherUser(NOBODY)) == os.getpid()  # type: ignore[arg-type]
    with pytest.raises(JoinError, match=rf"of user 7, this one of user {NOBODY}"):
        greeting.peer_of(OtherUser(7))  # type: ignore[arg-type]


@pytest.mark.parametrize("letter", ["a", "ß", "日", "😀", "\n"])
def test_a_text_without_room_is_cut(letter: str) -> None:
    record = greeting.pack(digest="", refused=letter * 300)
    assert len(record) == greeting.RECORD_BYTES
    kept = greeting.unpack(record)["refused"]
    assert kept == letter * len(kept)
    room = greeting.RECORD_BYTES - len(greeting.pack(digest="").rstrip()) - len(', "refused": ""')
    assert len(kept) in (300, *range(room // 12 - 1, room + 1))
    with pytest.raises(JoinError, match=letter):
        greeting.checked(record, b"")


def test_names_that_have_room_are_whole() -> None:
    record = greeting.pack(digest="d" * 64, name="rank 0, process 4711")
    assert greeting.unpack(record)["name"] == "rank 0, process 4711"
    with pytest.raises(ValueError, match="a greeting of"):
        greeting.pack(digest="d" * 600)


def test_a_nested_record_is_refused_on_any_stack() -> None:
    record = (b"guerdon host " + b"[" * greeting.RECORD_BYTES)[: greeting.RECORD_BYTES]

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        else:
            greeting.unpack(record)

    for calls in (0, sys.getrecursionlimit() - 300):
        with pytest.raises(JoinError, match="no greeting"):
            deep(calls)


PROGRAM = """
import sys
from guerdon import Dispatcher, reward
from guerdon._lanes.remote.engine_setup import pack

WORDS = {"one", "two", "three", "four", "five"}

class Reader:
    def read(self, text): return text in {"a", "b", "c", "d", "e"} or text in WORDS

@reward(timeout=float(sys.argv[1]))
def known(text: str) -> float:
    return float(Reader().read(text) or text in frozenset(("x", "y", "z", "v", "w")))

dispatcher = Dispatcher([known])
print(pack(dispatcher._specs, {}, None, dispatcher._engine.worker_setup().functions).digest.hex())
"""


def test_ranks_with_other_hash_seeds_have_the_same_functions(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)

    def digest(seed: str, timeout: str) -> str:
        environ = {"PYTHONHASHSEED": seed, "RANK": seed, "SOME_TOKEN" + seed: "secret"}
        return run_python(program, timeout, env=environ).stdout

    first = digest("1", "2")
    assert len(first) == 65
    assert digest("2", "2") == first
    assert digest("1", "3") != first


def test_the_cores_of_a_host_are_its_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a rank alone where the launcher's are not to be known."""
    monkeypatch.setattr(cpu_count, "allowed_cores", lambda: frozenset({4, 5}))
    monkeypatch.setattr(launcher, "_affinity", lambda environ: frozenset(range(8)))
    monkeypatch.setattr(cpu_count, "usable_cores", lambda: 2)
    monkeypatch.setattr(launcher, "ranks_on_host", lambda environ: 4)
    monkeypatch.delenv("SLURM_STEP_TASKS_PER_NODE", raising=False)
    assert (cpu_count.host_cores(), cpu_count.host_workers()) == (tuple(range(8)), 8)
    monkeypatch.setattr(cpu_count, "usable_cores", lambda: 1)  # a quota
    assert cpu_count.host_workers() == 1
    monkeypatch.setattr(cpu_count, "usable_cores", lambda: 2)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "4")
    assert (cpu_count.host_cores(), cpu_count.host_workers()) == ((4, 5), 2)
