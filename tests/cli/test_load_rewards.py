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


SHAPES = """
from guerdon import StatefulReward, group_reward, reward
@reward
def b(text): return 0
@group_reward
def a(texts): return [0] * len(texts)
def plain(prompts, completions): ...
class Long(StatefulReward):
    def score(self, text): return len(text)
    inner = reward(lambda text: 1.0, name="inner")
long = Long()
again = b
bounded = reward(Long(), name="bounded", timeout=1)
"""
OURS = """
from guerdon import rewards
from guerdon.rewards import math_equal
right = rewards.math_reward("answer")
thinks = rewards.think_format()
"""
OPTIONS = """
import guerdon
d = guerdon.Dispatcher([guerdon.reward(lambda text: 1.0, name="a")])
"""


@pytest.mark.parametrize(
    ("code", "named", "found"),
    [
        (SHAPES, "", ("b", "a", "Long", "bounded")),
        (SHAPES, ": plain, a", ("plain", "a")),
        (SHAPES, ":Long.inner", ("inner",)),
        (OURS, "", ("math_reward", "think_format")),
        (OPTIONS, "", ("a",)),
    ],
    ids=["in order, once", "named", "an attribute", "that come with Guerdon", "of a dispatcher"],
)
def test_functions_are_found(tmp_path: Path, code: str, named: str, found: tuple[str, ...]) -> None:
    with load(f"{write_rewards(tmp_path, code)}{named}", workers=3) as dispatcher:
        assert dispatcher.names == found
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
