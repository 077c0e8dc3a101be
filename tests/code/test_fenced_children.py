"""Fenced processes can do what programs need, and end; each is forked by a process for it alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.code.programs import ran

START = """
import os, sys, asyncio, tempfile, threading, ctypes
from guerdon.rewards.code.zygote.fence import FenceSpec, prepare
options = {options}
prepared = prepare(FenceSpec(**options))
def run(body):
    pid = prepared.fork()
    if pid == 0:
        status = 1
        try:
            prepared.enter((0, 1, 2))
            status = body() or 0
        except BaseException as error:
            os.write(2, f"{{type(error).__name__}}: {{error}}".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def fenced(body: str, **options: object) -> str:
    """The output of code in a process that has prepared fences."""
    return ran(START.format(options=options) + textwrap.dedent(body))


@pytest.mark.parametrize("without", [(), ("namespaces", "pid")])
def test_features_that_programs_use_work(without: tuple[str, ...]) -> None:
    printed = fenced(
        """
        def body():
            asyncio.run(asyncio.sleep(0))  # an event loop wakes itself by a pair of sockets
            thread = threading.Thread(target=lambda: os.write(1, b"thread "))
            thread.start()
            thread.join()
            import wave  # from the library
            open(os.devnull, "w").close()
            os.kill(os.getpid(), 0)
            os.write(1, str([name for name in os.environ if not name.endswith("_THREADS")]).encode())
        assert run(body) == 0
        """,
        without=without,
    )
    assert printed == "thread []"


@pytest.mark.parametrize("without", [(), ("pid",)])
@pytest.mark.fault("program whose process starts others that go on", sees="they end with it")
def test_children_end_with_their_parent(without: tuple[str, ...]) -> None:
    printed = fenced(
        """
        import signal
        theirs, ours = os.pipe()
        def body():
            for _ in range(3):
                if os.fork() == 0:
                    os.write(1, b"x")
                    signal.pause()
        pid = prepared.fork()
        if pid == 0:
            try:
                prepared.enter((0, 1, 2, ours))
                body()
            finally:
                os._exit(0)
        os.close(ours)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            pass
        os.waitpid(pid, 0)
        os.read(theirs, 1)  # the end of the last of them
        print(" ended")
        """,
        processes=True,
        without=without,
    )
    assert printed.endswith(" ended\n")


@pytest.mark.fault("the process that forks programs is killed", sees="its programs end with it")
def test_programs_end_with_the_process_that_forked_them() -> None:
    code = START.format(options={}) + textwrap.dedent(
        """
        import signal
        pid = prepared.fork()
        if pid == 0:
            prepared.enter((1,))
            os.write(1, b"x")
            signal.pause()
        os.close(1)
        os.waitpid(pid, 0)
        """
    )
    zygote = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert zygote.stdout is not None
    with zygote.stdout as pipe:
        assert pipe.read(1) == b"x"
        zygote.kill()
        zygote.wait()
        assert pipe.read() == b""  # the child had it too


def test_processor_time_ends() -> None:
    start = time.monotonic()
    printed = fenced(
        """
        def body():
            while True:
                pass
        print(run(body) < 0)
        """,
        cpu_seconds=1,
    )
    assert printed == "True\n"
    assert time.monotonic() - start < 100


def test_memory_counts_from_what_the_zygote_has() -> None:
    printed = fenced(
        """
        kept = bytearray(300 << 20)
        prepared = prepare(FenceSpec(isolation="strict", memory_limit=256 << 20, without=("namespaces", "pid")))
        def body():
            small = bytearray(128 << 20)
            try:
                bytearray(256 << 20)
            except MemoryError:
                os.write(1, b"no more")
        assert run(body) == 0
        """,
        without=("namespaces", "pid"),
    )
    assert printed == "no more"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_mounts_below_a_readable_folder_are_read_only(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    printed = fenced(
        f"""
        libc = ctypes.CDLL(None, use_errno=True)
        folder = {str(tmp_path)!r}
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 1 << 18 | 0x4000, None) == 0
        assert libc.mount(b"none", f"{{folder}}/below".encode(), b"tmpfs", 0, None) == 0
        prepared = prepare(FenceSpec(readable=(folder,)))
        if prepared.folder is None:
            print("no folder")
            sys.exit()
        def body():
            os.write(1, str([os.statvfs(folder + name).f_flag & 1 for name in ("", "/below")]).encode())
        run(body)
        """,
        isolation="none",
    )
    assert printed.strip() in ("[1, 1]", "no folder")
