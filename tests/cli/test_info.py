"""``guerdon info`` and ``--version``: what a dispatcher made here would use."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import guerdon as package
from guerdon._system.cpu_count import default_workers, usable_cores
from guerdon._system.extras import EXTRAS
from guerdon._system.launcher import RANK_VARIABLES, launch_id
from guerdon.cli import info
from tests.cli.conftest import Command
from tests.processes import run_python

ROOT = Path(__file__).parents[2]


def test_json_and_text(guerdon: Command) -> None:
    known = json.loads(guerdon("info", "--json").out)
    assert known["guerdon"] == package.__version__
    assert known["python"] == platform.python_version()
    assert known["cores"]["usable"] == usable_cores()
    assert known["workers"] == default_workers()
    assert known["lanes"].keys() == {"process", "code", "thread", "asyncio", "http", "native"}
    assert all(lane["available"] for lane in known["lanes"].values())
    assert known["packages"]["numpy"]
    ended = guerdon("info")
    assert ended.code == 0
    lines = dict(line.split("  ", 1) for line in ended.out.splitlines())
    assert lines["workers"].strip().startswith(str(default_workers()))
    version = guerdon("--version")
    assert (version.code, version.out) == (0, f"guerdon {package.__version__}\n")


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


@pytest.mark.parametrize("command", ["info", "top"])
def test_the_help_names_exit_codes(guerdon: Command, command: str) -> None:
    assert "Exit code: 0 success; " in guerdon(command, "--help").out


def test_the_name_of_the_run(guerdon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    launchers = ("GUERDON_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", *RANK_VARIABLES)
    for name in launchers:
        monkeypatch.delenv(name, raising=False)
    assert json.loads(guerdon("info", "--json").out)["run"] is None
    assert "each process is a run of its own (GUERDON_RUN_ID=<name>" in guerdon("info").out
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert json.loads(guerdon("info", "--json").out)["run"] == launch_id()
    monkeypatch.setenv("GUERDON_RUN_ID", "tonight")
    assert json.loads(guerdon("info", "--json").out)["run"] == "tonight"
    assert ["run", "tonight"] in [line.split() for line in guerdon("info").out.splitlines()]


def test_it_lists_the_extras_that_are_missing(guerdon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "_version", lambda package: None if package in ("uvicorn", "pyarrow") else "1.0")
    [line] = [line for line in guerdon("info").out.splitlines() if line.startswith("not installed")]
    expected = "parquet (pyarrow), serve (uvicorn), journal (pyarrow)"
    assert line.removeprefix("not installed").strip() == expected


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {extra: tuple(packages) for extra, packages in declared.items()} == EXTRAS


def test_messages_and_docs_name_packages_that_exist() -> None:
    """Nobody owns `guerdon` on the package index."""
    searched = [ROOT / name for name in ("python", "docs", "examples", "README.md", "CHANGELOG.md", "SECURITY.md")]
    found = subprocess.run(
        ["grep", "-rlE", r"guerdon\[[a-z]|pip install ['\"]?guerdon", *map(str, searched)],
        capture_output=True,
        text=True,
        check=False,
    )
    named = {str(Path(path).relative_to(ROOT)) for path in found.stdout.splitlines() if path.endswith((".py", ".md"))}
    # Both say why no other place may.
    assert named <= {"python/guerdon/_system/extras.py", "docs/internals/releasing.md"}


def test_the_docs_list_all_extras() -> None:
    section = (ROOT / "docs/index.md").read_text(encoding="utf-8").split("### Extras")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `([\w-]+)` \| .* \| (.*) \|$", section, re.M)
    packages = {
        extra: {re.split(r"[^\w-]", one)[0] for one in re.findall(r"`(.*?)`", names)} for extra, names in listed
    }
    assert packages == {extra: set(names) for extra, names in info._EXTRAS.items()}


def test_info_imports_none_of_the_packages_it_names() -> None:
    code = (
        "import sys\nfrom guerdon.cli import main\nmain(['info'])\n"
        "print([name for name in ('torch', 'trl', 'transformers', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    assert run_python(code).stdout.splitlines()[-1] == "[]"
