"""Reward functions that do to their worker what their completion says. Workers import this module.

Each call notes that it ran, and each process that one leaves behind notes its pid, in files of the
folder ``notes``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import mmap
import multiprocessing
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

FOR_EVER = 600.0


def act(completion: str, notes: str) -> float:
    verb, _, rest = completion.partition(":")
    _note(notes, "runs", completion)
    if verb == "give":
        return float(rest)
    value = DEEDS[verb](rest, notes)
    if rest == "hang":
        hang("", notes)
    return 1.0 if value is None else value


def _note(notes: str, name: str, line: object) -> None:
    with open(os.path.join(notes, name), "a") as file:
        file.write(f"{line}\n")


def doze(value: str, _: str) -> float:
    time.sleep(0.02)
    return float(value)


# ---- signals ----


def ignore_polite_signals(_: str, notes: str) -> float:
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return hang("", notes)


def block_all_signals(_: str, notes: str) -> float:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return hang("", notes)


def replace_all_handlers(_: str, _notes: str) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, lambda *_: None)
        except OSError:  # those that the C library keeps
            continue


def swallow_everything(_: str, notes: str) -> float:
    while True:
        try:
            hang("", notes)
        except BaseException:
            continue


def hold_the_gil(seconds: str, _: str) -> None:
    ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))  # unlike CDLL it doesn't let go of it


def signal_itself(number: str, _: str) -> None:
    os.kill(os.getpid(), int(number))
    time.sleep(FOR_EVER)


def kill_its_group(_: str, notes: str) -> float:
    os.killpg(0, signal.SIGKILL)
    return hang("", notes)


def kill_its_parent(levels: str, notes: str) -> float:
    pid = os.getppid()
    for _ in range(int(levels or 1) - 1):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    return hang("", notes)


def kill_zygotes_and_hang(times: str, notes: str) -> float:
    if (Path(notes) / "runs").read_text().count("kill_zygotes_and_hang") <= int(times):
        kill_its_parent("2", notes)
    return hang("", notes)


def hang(_: str, _notes: str) -> float:
    while True:
        time.sleep(FOR_EVER)


# ---- descendants ----


def fork_grandchildren(_: str, notes: str) -> None:
    for _ in range(2):
        if os.fork() == 0:
            for _ in range(2):
                if os.fork() == 0:
                    break
            _sleep_on(notes)
    _wait_for(notes, 6)


def daemonise(then: str, notes: str) -> None:
    _daemon(notes)
    _wait_for(notes, 1)
    if then == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def daemonise_by_exec(_: str, notes: str) -> None:
    """A daemon that is another program: of its worker it has the environment only."""
    path = os.path.join(notes, "pids")
    script = f"echo $$ >>{path}; exec sleep {FOR_EVER}"
    subprocess.Popen(["sh", "-c", script], start_new_session=True, close_fds=True)
    _wait_for(notes, 1)


def leave_a_tree(_: str, notes: str) -> None:
    """Daemons that start daemons: each leads a session of its own and ignores what it can."""
    if os.fork() == 0:
        for _ in range(3):
            os.setsid()
            if os.fork():
                _sleep_on(notes)
        os._exit(0)
    _wait_for(notes, 3)


def _daemon(notes: str) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.closerange(0, 256)
            _sleep_on(notes)
        os._exit(0)
    os.wait()


def fork_and_return_twice(_: str, notes: str) -> None:
    """Both processes go on as if they were the worker."""
    if os.fork() == 0:
        _note(notes, "pids", os.getpid())


def start_a_pool(then: str, notes: str) -> None:
    pool = multiprocessing.get_context("fork").Pool(2)  # never closed, never joined
    for pid in pool.map(_pid, range(2), chunksize=1):
        _note(notes, "pids", pid)
    if then == "hang":
        pool.map(time.sleep, [FOR_EVER] * 2)


def _pid(_: int) -> int:
    time.sleep(0.1)
    return os.getpid()


def _sleep_on(notes: str) -> None:
    _note(notes, "pids", os.getpid())
    time.sleep(FOR_EVER)
    os._exit(0)


def _wait_for(notes: str, pids: int) -> None:
    path = Path(notes, "pids")
    while not path.exists() or len(path.read_text().splitlines()) < pids:
        time.sleep(0.005)


# ---- descriptors and folders ----


def close_every_descriptor(_: str, _notes: str) -> None:
    os.closerange(0, 4096)


def write_garbage_everywhere(_: str, notes: str) -> float:
    for name in os.listdir("/proc/self/fd"):
        try:
            # not by chance the beginning of a message
            os.write(int(name), b"\xff" * 4 + os.urandom(4092))
        except OSError:  # not one to write to
            continue
    return hang("", notes)


def lose_its_folder(_: str, notes: str) -> None:
    folder = os.path.join(notes, "folder")
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    os.rmdir(folder)


def use_up_descriptors(_: str, _notes: str) -> float:
    held = []
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))


def write_a_temporary_file(_: str, _notes: str) -> None:
    with open(os.path.join(os.environ["TMPDIR"], "mine"), "wb") as file:
        file.write(bytes(1 << 20))


def take_addresses(_: str, _notes: str) -> float:
    held = []
    while True:
        held.append(bytes(16 << 20))


# ---- output ----


def use_up_memory(_: str, _notes: str) -> float:
    """Takes more than a cgroup has that the test made for it, and never all of a machine's."""
    held = [bytearray(b"x") * (16 << 20) for _ in range(256)]
    return float(len(held))


def print_without_end_of_line(megabytes: str, _: str) -> None:
    for _ in range(int(megabytes)):
        os.write(1, b"y" * (1 << 20))


def break_the_streams(_: str, _notes: str) -> None:
    class Broken:
        def write(self, text: str) -> int:
            raise OSError("no")

        def flush(self) -> None:
            raise OSError("no")

    sys.stdout = sys.stderr = Broken()  # type: ignore[assignment]


# ---- ends ----


def abort(_: str, _notes: str) -> float:
    os.abort()


def overflow_the_stack(_: str, _notes: str) -> None:
    """Passes more by value than the stack may hold. Recursion won't do on every version: some bound
    it in C too."""
    most = 8 << 20  # the kernel asks at each page that the stack grows by
    resource.setrlimit(resource.RLIMIT_STACK, (most, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    class Large(ctypes.Structure):
        _fields_ = (("filling", ctypes.c_char * (2 * most)),)

    ctypes.CDLL(None).labs(Large())


def deadlock_at_exit(_: str, _notes: str) -> float:
    lock = threading.Lock()
    lock.acquire()
    atexit.register(lock.acquire)
    sys.exit(3)


def start_endless_threads(_: str, _notes: str) -> None:
    for daemon in (True, False):
        for _ in range(4):
            threading.Thread(target=time.sleep, args=(FOR_EVER,), daemon=daemon).start()


def exit_in_a_thread(_: str, _notes: str) -> None:
    thread = threading.Thread(target=sys.exit, args=(4,))
    thread.start()
    thread.join()


def exec_something_else(_: str, _notes: str) -> float:
    os.execv("/bin/sleep", ["sleep", str(FOR_EVER)])


# ---- lies to the supervisor ----


def _message(kind: int, *, flags: int = 0, call: int = 0, frame: int = 0, body: bytes = b"", length: int = -1) -> bytes:
    return struct.pack("<IBBHQ", len(body) if length < 0 else length, kind, flags, call, frame) + body


def _socket() -> int:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return int(name)
        except OSError:  # the listing's own
            continue
    raise LookupError("no socket")


def announce_four_gigabytes(_: str, notes: str) -> float:
    os.write(_socket(), _message(5, length=0xFFFFFFFF))
    return hang("", notes)


def answer_for_an_unknown_frame(_: str, notes: str) -> float:
    os.write(_socket(), _message(2, frame=1 << 40, call=1))
    return hang("", notes)


def talk_without_end(_: str, _notes: str) -> float:
    socket, message = _socket(), _message(1) * 4000
    while True:
        os.write(socket, message)


def forge_pages(trainer: str, _: str) -> float:
    """Writes to the pages of all workers by the trainer's descriptors; how many it could."""
    forged = seen = 0
    for name in os.listdir(f"/proc/{trainer}/fd"):
        path = f"/proc/{trainer}/fd/{name}"
        try:
            if "guerdon-page" not in os.readlink(path):
                continue
            seen += 1
            with open(path, "r+b", buffering=0) as page:
                with contextlib.suppress(OSError):
                    forged += os.pwrite(page.fileno(), bytes(8), 64) > 0
                with contextlib.suppress(OSError):
                    mmap.mmap(page.fileno(), 4096)
                    forged += 1
        except OSError:  # closed meanwhile
            continue
    assert seen
    return float(forged)


DEEDS: dict[str, Callable[[str, str], float | None]] = {
    name: deed
    for name, deed in list(globals().items())
    if callable(deed) and getattr(deed, "__module__", "") == __name__
}
