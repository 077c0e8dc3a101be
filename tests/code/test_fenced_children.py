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


def test_the_folder_is_its_own_and_empty_again() -> None:
    printed = fenced(
        """
        if prepared.folder is None:
            print("no folder")
            sys.exit()
        def write():
            with open("data", "w") as file:
                file.write("1")
            os.write(1, os.getcwd().encode() + b" ")
        def look():
            os.write(1, str(os.listdir()).encode())
        assert run(write) == 0
        prepared.clear_folder()
        assert run(look) == 0
        """
    )
    assert printed.strip() in ("/own []", "no folder")


@pytest.mark.skipif(not Path("/usr/bin/cc").exists(), reason="no C compiler")
def test_a_compiler_and_what_it_built() -> None:
    printed = fenced(
        """
        if prepared.folder is None:
            print("no folder")
            sys.exit()
        def build():
            with open("a.c", "w") as file:
                file.write('#include <unistd.h>\\nint main(void) { return write(1, "built", 5) != 5; }')
            os.execve("/usr/bin/cc", ["cc", "-o", "a", "a.c"], {"PATH": "/usr/bin:/bin", "TMPDIR": prepared.folder})
        assert run(build) == 0
        assert run(lambda: os.execve("./a", ["a"], {})) == 0
        """,
        processes=True,
        execute=True,
    )
    assert printed.strip() in ("built", "no folder")


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


def test_descriptors_that_are_not_given_are_closed() -> None:
    printed = fenced(
        """
        fds = [os.dup(1) for _ in range(20)]
        def body():
            open_ones = []
            for fd in range(64):
                try:
                    os.fstat(fd)
                    open_ones.append(fd)
                except OSError:
                    pass
            os.write(1, str(open_ones).encode())
        run(body)
        """
    )
    assert printed == "[0, 1, 2]"


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


@pytest.mark.parametrize("alone", [False, True])
def test_starting_processes_can_be_forbidden(alone: bool) -> None:
    printed = fenced(
        f"""
        pid = prepared.fork()
        if pid == 0:
            prepared.enter((0, 1, 2), alone={alone})
            try:
                if os.fork() == 0:
                    os._exit(0)
                os.write(1, b"started")
            except PermissionError:
                os.write(1, b"refused")
            os._exit(0)
        os.waitpid(pid, 0)
        """,
        processes=True,
    )
    assert printed == ("refused" if alone else "started")


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
