"""A real vLLM server on the CPU.

- A server is a process group of its own, ended by that group's id: nothing of it is left after
  `stop` or `kill`.
- It answers on 127.0.0.1 only, on a port that was free; a restart keeps the port, as a supervisor
  would.
- Its temporary files lie in a folder of its own, which goes with it.
- Waiting for it raises when it has ended, with the end of its log; nothing waits longer than
  `READY_S`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.vllm.model import CONTEXT

READY_S = 300.0  # imports of vLLM in three processes, on a machine that does other things too
ENDED_S = 30.0
# A step of training needs adapters by file instead of NCCL, and the endpoints that pause and
# ask the server.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    # The engine works in its own process and not in one more
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # It would compile a small function of the sampler: ten seconds at the first request
    "TORCH_COMPILE_DISABLE": "1",
}
ARGUMENTS = f"--max-model-len {CONTEXT} --dtype float32 --enforce-eager --distributed-executor-backend uni".split()
# A prompt taken in pieces and a seed together end the engine of vLLM 0.30 on a CPU ("CPU Generator
# does not use offset").
WHOLE = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", str(4 * CONTEXT))
# `--max-loras` is at least the trainer's `max_staleness` + 2.
ADAPTERS = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "6")


class Server:
    """One vLLM server; `url` is where it answers once `start` is back."""

    def __init__(self, model: Path, log: Path, *arguments: str, adapters: bool = True) -> None:
        self.model = model
        self.log = log
        self._arguments = (*(ADAPTERS if adapters else ()), *arguments)
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: str | None = None  # short, because its sockets lie there too

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Starts it, without waiting."""
        assert self._process is None
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model)]
        command += ["--host", "127.0.0.1", "--port", str(self._port), *ARGUMENTS, *WHOLE, *self._arguments]
        self._scratch = tempfile.mkdtemp(prefix="vllm-")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **ENVIRONMENT, "TMPDIR": self._scratch},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + READY_S
        while not self.healthy():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the vLLM server doesn't answer; the end of its log:\n{self.tail()}")
            time.sleep(0.2)

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def tail(self, characters: int = 20_000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-characters:]

    def stop(self) -> None:
        """Ends it as an operator would; with force if it takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, requests in hand or not."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(ENDED_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        finally:
            _end_group(process.pid)
            process.wait(ENDED_S)
            shutil.rmtree(self._scratch or "", ignore_errors=True)


def _end_group(group: int) -> None:
    """Ends what is left of a process group, its engine's processes too."""
    deadline = time.monotonic() + ENDED_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
