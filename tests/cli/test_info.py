"""``guerdon info`` and ``--version``: what a dispatcher made here would use."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

import guerdon as package
from guerdon._cpu_count import default_workers, usable_cores
from tests.cli.conftest import Command


def test_json(guerdon: Command) -> None:
    known = json.loads(guerdon("info", "--json").out)
    assert known["guerdon"] == package.__version__
    assert known["python"] == platform.python_version()
    assert known["cores"]["usable"] == usable_cores()
    assert known["workers"] == default_workers()
    assert known["lanes"].keys() == {"process", "thread", "asyncio", "http"}
    assert known["packages"]["numpy"]


def test_text(guerdon: Command) -> None:
    ended = guerdon("info")
    assert ended.code == 0
    lines = dict(line.split("  ", 1) for line in ended.out.splitlines())
    assert lines["workers"].strip().startswith(str(default_workers()))


def test_it_names_the_secrets_that_workers_do_not_get(guerdon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFO_API_KEY", "sk-1234")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    given = json.loads(guerdon("info", "--json").out)["worker_environment"]
    assert "INFO_API_KEY" in given["hidden"]
    assert given["OMP_NUM_THREADS"] == "7"
    text = guerdon("info").out
    assert "INFO_API_KEY" in text
    assert "sk-1234" not in text


def test_ranks_share_the_cores(guerdon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1024")
    known = json.loads(guerdon("info", "--json").out)
    assert (known["ranks"], known["world_size"], known["workers"]) == (1024, 1024, 1)
    assert "1024 ranks on this host" in guerdon("info").out


def test_version(guerdon: Command) -> None:
    ended = guerdon("--version")
    assert (ended.code, ended.out) == (0, f"guerdon {package.__version__}\n")


def test_info_imports_none_of_the_packages_it_names() -> None:
    code = (
        "import sys\nfrom guerdon.cli import main\nmain(['info'])\n"
        "print([name for name in ('torch', 'trl', 'transformers', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
