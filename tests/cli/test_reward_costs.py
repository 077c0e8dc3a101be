"""``guerdon info FILE``: where functions run and what loading them costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Command
from tests.stress.harness import gone, wait_for

HEAD = "import os, sys, threading, time\nimport guerdon\nIN_WORKER = '_guerdon_worker' in sys.modules\n"
PLAIN = """
@guerdon.reward
def correct(completion): return 1.0
@guerdon.reward(lane="thread")
def slow(completion): return 1.0
@guerdon.reward
async def judged(completion): return 1.0
"""


def _write(folder: Path, name: str, code: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(HEAD + code)
    return path


def _costs(guerdon: Command, path: Path) -> dict[str, Any]:
    ended = guerdon("info", "--json", path)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)["rewards"]
    return found


def test_functions_that_are_forked(guerdon: Command, tmp_path: Path) -> None:
    path = _write(tmp_path, "costs_plain", PLAIN)
    costs = _costs(guerdon, path)
    assert [(each["name"], each["lane"], each["start"]) for each in costs["functions"]] == [
        ("correct", "process", "fork"),
        ("slow", "thread", None),
        ("judged", "asyncio", None),
    ]
    worker = costs["worker"]
    assert worker["start"] == "fork"
    assert 0 < worker["memory_bytes"] < worker["loaded_bytes"]
    assert (worker["threads"], worker["devices"]) == ([], [])
    table = guerdon("info", path).out
    assert [line.split()[:3] for line in table.splitlines() if line.startswith(("correct", "slow"))] == [
        ["correct", "process", "forked"],
        ["slow", "thread", "-"],
    ]
    assert "A worker is forked with the functions loaded" in table


def test_row_33_what_a_module_left_is_named(guerdon: Command, tmp_path: Path) -> None:
    _write(
        tmp_path, "costs_helper", "held = bytearray(b'x') * 20_000_000\n@guerdon.reward\ndef first(text): return 1.0\n"
    )
    path = _write(
        tmp_path,
        "costs_threads",
        "from costs_helper import first\n"
        "if IN_WORKER:\n"
        "    threading.Thread(target=time.sleep, args=(1000,), daemon=True, name='uploader').start()\n"
        "    print('a printed line')\n"
        "@guerdon.reward\ndef second(text): return 1.0\n",
    )
    costs = _costs(guerdon, path)
    first, second = costs["functions"]
    assert (first["start"], first["threads"], second["threads"]) == ("load", [], ["uploader"])
    assert first["import_bytes"] >= 20_000_000 > second["import_bytes"]
    assert (costs["worker"]["start"], costs["worker"]["threads"]) == ("load", ["uploader"])
    table = guerdon("info", path).out
    assert "Each worker loads the functions itself" in table
    assert "because of uploader" in table


def test_loading_failure_in_a_worker_gives_the_reason(guerdon: Command, tmp_path: Path) -> None:
    path = _write(tmp_path, "costs_raises", "if IN_WORKER:\n    raise RuntimeError('no licence')\n" + PLAIN)
    costs = _costs(guerdon, path)
    assert "no licence" in costs["functions"][0]["error"]
    assert "no licence" in guerdon("info", path).out


def test_no_process_of_an_import_is_left(guerdon: Command, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = _write(
        tmp_path,
        "costs_daemon",
        "import subprocess\nif IN_WORKER:\n"
        f"    subprocess.Popen(['sh', '-c', 'echo $$ >{pids}; exec sleep 1000'], start_new_session=True)\n"
        f"    while not os.path.exists({str(pids)!r}): time.sleep(0.01)\n" + PLAIN,
    )
    assert _costs(guerdon, path)["worker"]["start"] == "fork"
    wait_for(lambda: gone([int(pids.read_text())]), "it ends")  # unless it is a zombie of init's


@pytest.mark.parametrize(
    ("end", "seconds", "reason"),
    [
        ("os._exit(3)", 60, "importing its module ended the process"),
        ("time.sleep(1000)", 8, "importing its module did not end within its setup_timeout of 8 s"),
    ],
    ids=["exits", "hangs"],
)
def test_no_fork_of_an_import_that_does_not_end_well_is_left_or_waited_for(
    guerdon: Command, tmp_path: Path, end: str, seconds: int, reason: str
) -> None:
    pids = tmp_path / "pids"
    path = _write(
        tmp_path,
        f"costs_forks_and_{'exits' if 'exit' in end else 'hangs'}",
        "if IN_WORKER:\n"
        "    if os.fork() == 0:\n"
        f"        os.setsid(); open({str(pids)!r} + '~', 'w').write(str(os.getpid())); os.rename({str(pids)!r} + '~', {str(pids)!r}); time.sleep(1000)\n"
        f"    while not os.path.exists({str(pids)!r}): time.sleep(0.01)\n"
        f"    {end}\n"
        f"@guerdon.reward(setup_timeout={seconds})\ndef stuck(completion): return 1.0\n",
    )
    costs = _costs(guerdon, path)
    assert costs["worker"] is None
    assert costs["functions"][0]["error"] == reason
    wait_for(lambda: gone([int(pids.read_text())]), "it ends")  # unless it is a zombie of init's
    assert reason in guerdon("info", path).out


def test_a_file_that_is_not_there(guerdon: Command, tmp_path: Path) -> None:
    assert "there is no file" in guerdon.refused("info", tmp_path / "none.py")


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    path = _write(
        tmp_path, "costs_waits", f"if IN_WORKER:\n    open({str(started)!r}, 'w'); time.sleep(1000)\n" + PLAIN
    )
    process = subprocess.Popen([sys.executable, "-m", "guerdon", "info", str(path)], env={**os.environ})
    try:
        while not started.exists():
            assert process.poll() is None
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(2)
        assert process.wait(100) == 130
        wait_for(lambda: gone([child.pid for child in children]), "its processes end")
    finally:
        process.kill()
        process.wait()


def test_output_and_replaced_streams_of_a_module_are_handled(guerdon: Command, tmp_path: Path) -> None:
    """Neither is lost what the command prints, nor mixed with what the module does."""
    streams = "import io, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nprint('noise')\nsys.stdout, sys.stderr = io.StringIO(), None\n"
    costs = _costs(guerdon, _write(tmp_path, "costs_streams", streams + PLAIN))
    assert len(costs["functions"]) == 3
    assert "ValueError: mine" in guerdon.refused(
        "info", _write(tmp_path, "costs_raising", streams + "raise ValueError('mine')\n")
    )
