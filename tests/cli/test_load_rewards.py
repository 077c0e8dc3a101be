"""REWARDS: what is found in a file or module, and how it reaches the workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from guerdon._functions.serialization.serialized_functions import serialized_target
from guerdon.profile.load_rewards import load
from tests.cli.conftest import Command, write_rewards, write_rows


@pytest.fixture(autouse=True)
def _clean(guerdon: Command) -> Command:
    """Forgets what a test imported."""
    return guerdon


def test_decorated_functions_and_instances_in_order_once(tmp_path: Path) -> None:
    path = write_rewards(
        tmp_path,
        "from guerdon import StatefulReward, group_reward, reward\n"
        "@reward\ndef b(text): return 0\n"
        "@group_reward\ndef a(texts): return [0] * len(texts)\n"
        "def plain(prompts, completions): ...\n"
        "class Long(StatefulReward):\n    def score(self, text): return len(text)\n"
        "long = Long()\nagain = b\nbounded = reward(Long(), name='bounded', timeout=1)\n",
    )
    with load(str(path)) as dispatcher:
        assert dispatcher.names == ("b", "a", "Long", "bounded")
    with load(f"{path}: plain, a") as dispatcher:
        assert dispatcher.names == ("plain", "a")


def test_rewards_that_come_with_it_are_found(tmp_path: Path) -> None:
    path = write_rewards(
        tmp_path,
        "from guerdon import rewards\nfrom guerdon.rewards import math_equal\n"
        "right = rewards.math_reward('answer')\nthinks = rewards.think_format()\n",
    )
    with load(str(path)) as dispatcher:
        assert dispatcher.names == ("math_reward", "think_format")


def test_attributes_can_be_named(tmp_path: Path) -> None:
    path = write_rewards(
        tmp_path, "import guerdon\nclass Box:\n    inner = guerdon.reward(lambda text: 1.0, name='inner')\n"
    )
    with load(f"{path}:Box.inner") as dispatcher:
        assert dispatcher.names == ("inner",)


def test_options_reach_the_dispatcher(tmp_path: Path) -> None:
    path = write_rewards(
        tmp_path, "import guerdon\nd = guerdon.Dispatcher([guerdon.reward(lambda text: 1.0, name='a')])\n"
    )
    with load(str(path), workers=3) as dispatcher:
        assert dispatcher.workers == 3


def test_a_file_with_a_free_name_travels_by_reference(tmp_path: Path) -> None:
    path = write_rewards(tmp_path, "import guerdon\n@guerdon.reward\ndef one(text): return 1.0\n")
    with load(str(path)) as dispatcher:
        assert serialized_target(dispatcher._specs[0]) == ("ref", path.stem, "one")


@pytest.mark.parametrize("name", ["json.py", "pytest.py", "not-a-name.py", "numpy.py"])
def test_a_file_whose_name_is_taken_travels_by_value(guerdon: Command, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(
        "import guerdon\nfrom helper_of_rewards import LIMIT\n\n@guerdon.reward\ndef one(text):\n    return LIMIT\n"
    )
    (tmp_path / "helper_of_rewards.py").write_text("LIMIT = 2.0\n")
    taken = sys.modules.get(path.stem)
    with load(str(path)) as dispatcher:
        assert serialized_target(dispatcher._specs[0])[0] == "value"
    assert sys.modules.get(path.stem) is taken
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "x"}])
    assert guerdon("score", path, data).rewards("one") == [2.0]


def test_a_folder_is_no_rewards_file(
    guerdon: Command, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollouts").mkdir()
    for place in ("rollouts", "rollouts/", tmp_path / "rollouts"):
        assert "is a folder, not a rewards file" in guerdon.refused("score", place, data)


def test_a_module_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "rewards_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "math.py").write_text("import guerdon\n@guerdon.reward\ndef one(text): return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with load("rewards_package.math") as dispatcher:
        assert serialized_target(dispatcher._specs[0]) == ("ref", "rewards_package.math", "one")
