"""A Jupyter kernel: functions of cells, edited cells, interrupts, await."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serialization.programs import marked

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_batch.ipynb"


class Kernel:
    """A kernel of Jupyter, and what its cells print."""

    def __init__(self, client: Any, manager: Any) -> None:
        self._client = client
        self.manager = manager

    def start(self, cell: str) -> str:
        request: str = self._client.execute(cell)
        return request

    def outcome(self, request: str) -> tuple[str, str | None]:
        """What the cell printed, and the name of the error that ended it."""
        printed, error = "", None
        while True:
            message = self._client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                printed += content["text"]
            elif kind == "error":
                error = content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return printed, error

    def run(self, cell: str) -> str:
        printed, error = self.outcome(self.start(cell))
        assert error is None, printed
        return printed


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    """A real one, in a process of its own."""
    pytest.importorskip("ipykernel")
    manager_module = pytest.importorskip("jupyter_client.manager")
    from jupyter_client.kernelspec import KernelSpec

    with marked() as environment:
        home = {
            name: str(tmp_path / name) for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")
        }
        manager = manager_module.KernelManager(transport="ipc", ip=str(tmp_path / "kernel"))
        command = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        manager._kernel_spec = KernelSpec(argv=command, display_name="guerdon", language="python")
        manager.connection_file = str(tmp_path / "kernel.json")
        manager.start_kernel(cwd=str(tmp_path), env={**environment, **home})
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            yield Kernel(client, manager)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=False)
            manager.context.destroy()


SETUP = """
import time
from guerdon import Dispatcher, group_reward, reward

TABLE = {"a": 1.0}

class Spec:
    def __init__(self, factor):
        self.factor = factor

def helper(text):
    return TABLE.get(text, 0.5)

@reward(timeout=60)
def score(completion, spec):
    if completion == "slow":
        time.sleep(60)
    assert isinstance(spec, Spec)
    return helper(completion) * spec.factor

@group_reward
def share(completions, **columns):
    return [1 / len(completions) for _ in completions]

made = Dispatcher([score, share], workers=1)
def ask(*texts):
    return made.score(completions=texts, spec=[Spec(2.0)] * len(texts), num_generations=len(texts)).rewards.ravel().tolist()
"""

JUDGE = """
import asyncio
LOOPS = set()

@reward
async def judge(completion):
    LOOPS.add(asyncio.get_running_loop())
    await asyncio.sleep(0.01)
    return float(len(completion))

judges = Dispatcher([judge])
"""


def test_a_jupyter_kernel(kernel: Kernel) -> None:
    kernel.run(SETUP)
    assert kernel.run("print(ask('a', 'b'))") == "[2.0, 0.5, 1.0, 0.5]\n"
    # The notebook's own loop awaits it, and goes on meanwhile.
    awaited = "await made.ascore(completions=['a'], spec=[Spec(3.0)], num_generations=1)"
    assert kernel.run(f"print(({awaited}).rewards.ravel().tolist())") == "[3.0, 1.0]\n"
    # An async function has a loop of its own, whether the notebook's waits for it or is stopped by
    # the call.
    kernel.run(JUDGE)
    for call in ("await judges.ascore", "judges.score", "await judges.ascore"):
        assert kernel.run(f"print(({call}(completions=['a', 'bc'])).rewards.ravel().tolist())") == "[1.0, 2.0]\n"
    assert kernel.run("print(asyncio.get_running_loop() in LOOPS, len(LOOPS))") == "False 1\n"
    # The button that interrupts: the batch ends, the dispatcher stays.
    request = kernel.start("print('waiting', flush=True); ask('slow')")
    time.sleep(1.0)
    kernel.manager.interrupt_kernel()
    assert kernel.outcome(request)[1] == "KeyboardInterrupt"
    assert kernel.run("print(ask('a'))") == "[2.0, 1.0]\n"
    # An edited cell reaches the next dispatcher; the one that there is keeps what it was given.
    kernel.run("def helper(text):\n    return 10.0")
    assert kernel.run("print(ask('a'))") == "[2.0, 1.0]\n"
    kernel.run("old, made = made, Dispatcher([score, share], workers=1)")
    assert kernel.run("print(ask('a'))") == "[20.0, 1.0]\n"
    # What a worker prints is shown, under its function's name; it ends with the kernel, closed or
    # not.
    shouts = "reward(lambda text: float(print('hello', text) is None), name='shouts')"
    kernel.run(f"shouts = Dispatcher([{shouts}], workers=1)")
    assert kernel.run("print(shouts.score(completions=['x']).rewards.item())") == "1.0\n"


def test_an_edited_module_reaches_the_next_dispatcher_after_a_reload(kernel: Kernel, tmp_path: Path) -> None:
    module = tmp_path / "rewards_of_a_notebook.py"
    module.write_text("def score(text): return 1.0\n")
    kernel.run("import sys, importlib; sys.path.insert(0, '.'); from guerdon import Dispatcher, reward")
    kernel.run("import rewards_of_a_notebook as rewards")
    ask = "with Dispatcher([reward(rewards.score)], workers=1) as made: print(made.score(completions=['a']).rewards.item())"
    assert kernel.run(ask) == "1.0\n"
    module.write_text("FACTOR = 20.0\ndef score(text): return FACTOR\n")
    assert kernel.run(ask) == "1.0\n", "what this process has is what runs"
    kernel.run("importlib.reload(rewards)")
    assert kernel.run(ask) == "20.0\n"


def test_the_example_notebook_prints_what_it_shows(kernel: Kernel) -> None:
    for cell in json.loads(EXAMPLE.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            took = re.compile(r"in [\d.]+ s,")
            assert took.sub("", kernel.run("".join(cell["source"]))) == took.sub("", shown)
