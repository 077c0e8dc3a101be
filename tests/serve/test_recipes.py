"""The recipes for servers in examples/deploy can be used as they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from guerdon.cli import serve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text()
DEPLOY = ROOT / "examples" / "deploy"


def options_of(command: list[str]) -> Any:
    """The options of a `guerdon serve` command, as the command itself reads them."""
    import argparse

    parser = argparse.ArgumentParser()
    serve.add_to(parser.add_subparsers())
    assert command[0] == "guerdon"
    return parser.parse_args(command[1:])


def test_shell_scripts_are_shell() -> None:
    script = (DEPLOY / "serve-slurm.sh").read_text()
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    command = next(line for line in script.splitlines() if line.startswith("srun "))
    options = options_of(command.removeprefix("srun ").split())
    seconds = re.search(r"--signal=TERM@(\d+)", script)
    assert seconds is not None
    assert options.token_file
    assert 'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"' in script, "else each server has one core"
    assert options.drain_timeout < int(seconds[1])


def test_manifests_are_manifests() -> None:
    service, deployment = yaml.safe_load_all((DEPLOY / "serve-kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    options = options_of(container["command"])
    assert options.port == container["ports"][0]["containerPort"] == service["spec"]["ports"][0]["port"]
    assert [one["name"] for one in container["env"]] == ["GUERDON_SERVE_TOKEN"]
    assert {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("liveness", "readiness")} == {"/health", "/ready"}
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert options.drain_timeout + wait < pod["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("option", re.findall(r"`(--[a-z-]+)", PAGE))
def test_options_are_those_of_the_command(option: str) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    serve.add_to(commands := parser.add_subparsers())
    known = commands.choices["serve"]._option_string_actions
    assert option in known or option in ("--reward", "--rm-type", "--rm-url")
