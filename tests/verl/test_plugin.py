"""verl finds the reward manager, and has the parts that it builds on."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("verl")

from guerdon.integrations.verl import RewardManager, routing, settings
from tests.verl.verl_setup import reward_loop

# Imported last: verl_setup imports verl without its warnings.
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls  # isort: skip


@pytest.mark.parametrize("loaded", ["the registry first", pytest.param("the plugin first", marks=pytest.mark.whole)])
def test_the_plugin_needs_one_setting(loaded: str) -> None:
    """It runs in a new process: verl loads plugins at import, and without its registry."""
    registry = "import verl.experimental.reward_loop.reward_manager.registry"
    plugin = "import guerdon.integrations.verl.plugin"
    program = f"""
import sys, warnings
warnings.simplefilter("ignore")
import verl
if {loaded == "the registry first"}:
    {registry}
    before = set(sys.modules)
    {plugin}
else:
    {plugin}
    assert "verl.experimental.reward_loop" not in sys.modules, "nothing is imported for it"
    {registry}
from verl.experimental.reward_loop.reward_manager.registry import get_reward_manager_cls
from guerdon.integrations.verl import RewardManager
assert get_reward_manager_cls("guerdon") is RewardManager
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_verl_finds_the_plugin() -> None:
    (found,) = (one for one in entry_points(group="verl.plugins") if one.name == "guerdon")
    assert found.value == "guerdon.integrations.verl.plugin"
    assert get_reward_manager_cls("guerdon") is RewardManager


def test_the_seams_are_where_they_were() -> None:
    """`routing` builds on the names of verl's workers and on the method by which verl asks them."""
    made = inspect.getsource(reward_loop.RewardLoopManager._init_reward_loop_workers)
    assert 'name=f"reward_loop_worker_{i}"' in made
    assert routing._NAME.fullmatch("reward_loop_worker_12")
    # Ray wraps the methods of a class that it has made an actor of, and adds to their signatures.
    compute_score = inspect.unwrap(reward_loop.RewardLoopWorker.compute_score)
    code = compute_score.__code__
    assert code.co_varnames[: code.co_argcount] == ("self", "data")
    assert inspect.iscoroutinefunction(compute_score)


def test_the_page_has_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verl.md").read_text()
    named = set(re.findall(r"reward\.reward_kwargs\.(\w+)", page))
    assert named == set(settings._KNOWN)
