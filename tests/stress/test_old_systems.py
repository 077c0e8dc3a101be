"""Systems and interpreters that lack what newer ones have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.processes import run_python

# Refuses all calls that came after Linux 5.4, and the flag of pidfd_open that came with 5.10.
LINUX_5_4 = """
import ctypes, errno, struct
def statement(code, operand, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, operand)
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
program = b"".join([
    statement(LOAD, 0),
    statement(AT_LEAST, 436, 5, 0),
    statement(EQUAL, 434, 0, 3),
    statement(LOAD, 24),  # the second argument
    statement(ANY_BIT, os.O_NONBLOCK, 0, 1),
    statement(RETURN, REFUSE | errno.EINVAL),
    statement(RETURN, ALLOW),
    statement(RETURN, REFUSE | errno.ENOSYS),
])
text = ctypes.create_string_buffer(program, len(program))
filter_of = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, MODE_FILTER, PIDFD_OPEN = 38, 22, 2, 434
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
if libc.prctl(SECCOMP, MODE_FILTER, filter_of, 0, 0) != 0:
    print("no seccomp:", os.strerror(ctypes.get_errno()))
    raise SystemExit
assert libc.syscall(PIDFD_OPEN, os.getpid(), os.O_NONBLOCK) == -1 and ctypes.get_errno() == errno.EINVAL
"""

SCORE = """
import os
{before}
from guerdon import Dispatcher, reward
from tests.stress import faulty_functions
with Dispatcher([reward(faulty_functions.act, timeout=3, grace=0.2, max_failure_rate=1)], workers=2) as dispatcher:
    texts = ["give:1", "give:2", "hang", "give:3"]
    result = dispatcher.score(completions=texts, notes=[{notes!r}] * 4, num_generations=1)
    print(result.rewards.ravel().tolist(), [failure.status.name for failure in result.failures()])
"""


def _score(notes: Path, before: str = "", **variables: str) -> str:
    program = SCORE.format(before=before, notes=str(notes))
    return run_python(program, flags=["-W", "ignore"], env=variables).stdout.strip()


SCORED = "[1.0, 2.0, nan, 3.0] ['TIMEOUT']"


@pytest.mark.fault(
    "the interpreter was built without `os.pidfd_open`, as conda's are",
    sees="nothing: the engine opens the descriptors and passes them on",
)
def test_row_30_an_interpreter_without_pidfd_open(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nif hasattr(os, 'pidfd_open'):\n    del os.pidfd_open\n")
    before = "assert not hasattr(os, 'pidfd_open')"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert _score(tmp_path, before, PYTHONPATH=path) == SCORED


@pytest.mark.fault(
    "the kernel is Linux 5.4: `PIDFD_NONBLOCK` and all later system calls are refused (a seccomp filter)",
    sees="nothing",
)
def test_row_30_the_calls_of_linux_5_4_are_enough(tmp_path: Path) -> None:
    seen = _score(tmp_path, LINUX_5_4)
    if seen.startswith("no seccomp"):
        pytest.skip(seen)
    assert seen == SCORED
