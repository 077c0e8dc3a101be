"""Our GRPO trainer with a vLLM server: each completion is scored when it is finished."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from guerdon import Dispatcher
from tests.integrations.trl import reward_functions
from tests.integrations.trl.recording_trainer import RecordingTrainer
from tests.integrations.trl.tiny_trainer import make_data
from tests.vllm.server import Server
from tests.vllm.training import make_server_trainer

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize(
    ("pipeline", "seeded"), [("overlap", True), pytest.param("all", False, marks=pytest.mark.whole)]
)
def test_rewards_begin_while_the_server_generates(
    pipeline: str, seeded: bool, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max_completion_length": 48, **({"generation_kwargs": {"seed": 5}} if seeded else {})}
    with Dispatcher([reward_functions.vowels, reward_functions.random_wait], workers=1) as dispatcher:
        more = {"pipeline": pipeline}
        trainer = make_server_trainer(
            RecordingTrainer, dispatcher, tmp_path, server, monkeypatch, more, make_data(16), **options
        )
        trainer.train()
        assert dispatcher.stats()["open_batches"] == 0
    for entry in trainer.state.log_history[:2]:
        assert entry["guerdon/pipeline/early_frac"] == 1.0
        # Each completion has the log-probabilities of its own tokens after its own prompt.
        assert entry["sampling/sampling_logp_difference/max"] < 1e-3
    assert set(trainer.prompts_seen().values()) == {4}
    batch = Counter(row for piece in trainer.pieces[:4] for row in piece)
    assert len(batch) > 12  # a seed doesn't make the completions of a prompt alike
    assert list(trainer._logs["rewards"]["vowels"]) == pytest.approx(
        [reward_functions.share(text, "aeiou") for text in trainer._logs["completion"]], abs=1e-6
    )
