"""A server that speaks SandboxFusion's `/run_code` and really runs programs: harmless ones only, as
another user where this process may, in a folder of their own, with limits."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from guerdon import Dispatcher, SandboxFusion, code_reward
from guerdon.rewards.code.child.encoding import encode
from guerdon.rewards.code.zygote.deadline import wall_seconds
from tests.code.programs import block
from tests.http.server import Server, serving

_NOBODY = 65534


def _interpreter() -> tuple[str, dict[str, Any]]:
    """A Python that the other user may run, and that user; the own one where there is none."""
    if os.geteuid() == 0:
        other: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()}
        for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            with contextlib.suppress(OSError):
                if subprocess.run([path, "-I", "-c", ""], check=False, cwd="/", **other).returncode == 0:
                    return path, other
    return sys.executable, {}


_PYTHON, _OTHER = _interpreter()
_COMMANDS = {"python": ("program.py", None, [_PYTHON, "-I", "program.py"])}
if (_COMPILER := shutil.which("g++")) is not None:
    _COMMANDS["cpp"] = ("program.cpp", [_COMPILER, "-o", "program", "program.cpp"], ["./program"])
_MOST_OUTPUT = 32 << 20
# Between two looks at the time that a program took.
_SLICE_S = 0.05


def run_code(body: dict[str, Any]) -> Any:
    """The answer to a request."""
    if body["language"] not in _COMMANDS:
        return 422, {"detail": [{"loc": ["body", "language"], "msg": "Input should be 'python' or 'cpp'"}]}
    name, compiles, command = _COMMANDS[body["language"]]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # others may not enter that of tests
        Path(folder, name).write_text(body["code"], "utf-8")
        if _OTHER:
            os.chown(folder, _NOBODY, _NOBODY)
        compiled = None if compiles is None else _step(compiles, folder, "", body["compile_timeout"], None)
        ran = None
        if compiled is None or compiled["return_code"] == 0:
            memory = body["memory_limit_MB"] << 20
            ran = _step(command, folder, body["stdin"], body["run_timeout"], memory)
    good = all(step is None or (step["status"] == "Finished" and step["return_code"] == 0) for step in (compiled, ran))
    status = "Success" if good else "Failed"
    return {"status": status, "message": "", "compile_result": compiled, "run_result": ran, "files": {}}


def _step(command: list[str], folder: str, stdin: str, timeout: float, memory: int | None) -> dict[str, Any]:
    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    started, ran, given = time.monotonic(), 0.0, stdin.encode()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=limits,
        **_OTHER,
    ) as process:
        status = "Finished"
        while True:
            try:
                out, err = process.communicate(given or None, _SLICE_S)
                break
            except subprocess.TimeoutExpired:
                given, ran = b"", _ran(process.pid)
            if ran > timeout or time.monotonic() - started > wall_seconds(timeout):
                os.killpg(process.pid, signal.SIGKILL)
                status = "TimeLimitExceeded"
    return {
        "status": status,
        "execution_time": ran,
        "return_code": process.returncode if status == "Finished" else None,
        "stdout": _decoded(out[:_MOST_OUTPUT]),
        "stderr": _decoded(err[:_MOST_OUTPUT]),
    }


def _ran(pid: int) -> float:
    """Seconds that a program had a processor: its time, as here, whatever else the machine does."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _decoded(output: bytes) -> str:
    """The text; one byte that is no UTF-8 takes all others along, as in SandboxFusion."""
    try:
        return output.decode()
    except UnicodeDecodeError as error:
        return f"[DecodeError] {error}"


def answered(nonce: str, value: Any) -> str:
    """The output of a process that made a call, with this value."""
    data = b2a_base64(encode(value, opaque=lambda value: 0), newline=False).decode()
    return f"{nonce} ready\n{nonce} value {data}\n"


@contextmanager
def sandbox(faulty: Callable[[int, dict[str, Any]], Any] | None = None, port: int = 0) -> Iterator[Server]:
    """A server that runs programs.

    Args:
        faulty: What it answers instead, by the number of the request, from 0; None where it runs
            the program.
    """

    def answer(path: str, body: dict[str, Any]) -> Any:
        assert path == "/run_code", path
        found = None if faulty is None else faulty(len(server.bodies) - 1, body)
        return run_code(body) if found is None else found

    with serving(answer, port=port) as server:
        yield server


def remote(server: Server | str, **options: Any) -> Any:
    """A code reward whose programs run there."""
    url = server if isinstance(server, str) else server.url
    given = {"timeout": 5.0, "max_failure_rate": 1.0, **options}
    return code_reward(remote=SandboxFusion(url, wait=given.pop("wait", 30.0)), **given)


def scored(code: Any, programs: list[str], **columns: Any) -> Any:
    """The result of programs."""
    with Dispatcher([code]) as dispatcher:
        return dispatcher.score(completions=[block(program) for program in programs], **columns)
