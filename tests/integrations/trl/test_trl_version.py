"""Our own trainers say which TRL they need; what else is there works with others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from guerdon import GuerdonError, GuerdonWarning
from guerdon.integrations import trl as integration
from guerdon.integrations.trl import trl_version
from guerdon.integrations.trl.patching import patched


def installed(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> str:
        assert name == "trl"
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", find)
    monkeypatch.setattr(trl_version, "_warned", set())


@pytest.mark.parametrize("name", ["GRPOTrainer", "AsyncGRPOTrainer"])
@pytest.mark.parametrize("version", ["0.18.2", "1.9.0", "1.15.0"])
def test_an_older_trl_is_refused_with_both_versions(name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(version, monkeypatch)
    monkeypatch.delitem(vars(integration), name, raising=False)
    with pytest.raises(
        ImportError, match=rf"trl\.{name} needs TRL 1\.16, and trl {version} is installed.*from 0\.18 on"
    ):
        getattr(integration, name)


def test_a_missing_trl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(None, monkeypatch)
    with pytest.raises(ImportError, match=r"needs TRL 1\.16, and trl is not installed: pip install 'trl==1\.16"):
        trl_version.require_trl("GRPOTrainer")


def test_a_newer_trl_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("1.17.0.dev0", monkeypatch)
    with pytest.warns(GuerdonWarning, match=r"derives from the trainers of TRL 1\.16, and trl 1\.17\.0\.dev0"):
        trl_version.require_trl("GRPOTrainer")
    trl_version.require_trl("GRPOTrainer")  # warnings are errors here
    trl_version.require_trl("AsyncGRPOTrainer")


def test_the_extra_of_our_trainers_pins_the_trl_that_they_derive_from() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    major, minor = trl_version.DERIVED_FROM
    assert f"trl=={major}.{minor}.*" in project["optional-dependencies"]["trl-async"]


@pytest.mark.filterwarnings("ignore")
def test_a_part_that_trl_moved_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TRL 1.18 removes the modules of its asynchronous trainer."""
    pytest.importorskip("trl.experimental.async_grpo")  # what it imports looks for versions too
    installed("1.18.0", monkeypatch)
    for name in [one for one in sys.modules if one.startswith("guerdon.integrations.trl.async_grpo.trainer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(vars(integration), "AsyncGRPOTrainer", raising=False)
    monkeypatch.setitem(sys.modules, "trl.experimental.async_grpo", None)
    with pytest.raises(
        ImportError, match=r"derive from TRL 1\.16, and trl 1\.18\.0 is installed\. pip install 'trl==1\.16"
    ):
        integration.AsyncGRPOTrainer  # noqa: B018


def test_an_attribute_that_trl_renamed_is_named_with_what_to_install() -> None:
    with (
        pytest.raises(GuerdonError, match=r"SimpleNamespace has no beta, .* derive from TRL 1\.16"),
        patched(SimpleNamespace(), {"beta": 0.0}),
    ):
        pass


def test_tools_and_options_ask_for_no_version() -> None:
    program = (
        "from importlib import metadata\n"
        "def find(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = find\n"
        "from guerdon.integrations.trl import Pipeline, tools, environments"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=250)


@pytest.mark.parametrize(
    ("missing", "named"), [(["aiohttp"], "aiohttp"), (["aiohttp", "requests"], "aiohttp and requests")]
)
def test_missing_packages_of_the_asynchronous_trainer_are_named_with_the_extra(
    missing: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in missing:
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(vars(integration), "AsyncGRPOTrainer", raising=False)
    with pytest.raises(ImportError, match=rf"AsyncGRPOTrainer needs {named}, .*pip install 'aiohttp' 'requests' "):
        integration.AsyncGRPOTrainer  # noqa: B018
