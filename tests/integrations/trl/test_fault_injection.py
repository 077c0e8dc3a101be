"""Faults during a training run: it goes on as the policies say, or ends and leaves nothing.

Tests of what a dispatcher does wherever it runs are elsewhere: a killed trainer in
tests/stress/test_process_lane.py, a judge's server that comes late in tests/http/test_endpoints.py.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("trl")


from guerdon import Dispatcher, reward
from guerdon.integrations.trl import GRPOTrainer
from tests.clock import eventually
from tests.integrations.trl import faulty_rewards
from tests.integrations.trl.tiny_trainer import make_trainer
from tests.processes import gone

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]


def test_a_hang_and_a_crash_in_every_step_cost_a_sample_each(tmp_path: Path) -> None:
    function = reward(faulty_rewards.TroubledReward(str(tmp_path)), name="troubled", timeout=2.0)
    with Dispatcher([function], workers=2, log_metrics="all") as dispatcher:
        trainer = make_trainer(dispatcher, tmp_path, trainer_class=GRPOTrainer, max_steps=2)
        trainer.train()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    for kind in ("timeout", "crashed"):
        assert [step[f"guerdon/troubled/{kind}_frac"] for step in steps] == [1 / 8, 1 / 8]
    assert [step["guerdon/troubled/failed_frac"] for step in steps] == [2 / 8, 2 / 8]
    assert [step["reward"] for step in steps] == [1.0, 1.0]


@pytest.mark.parametrize("pipeline", ["off", "one_step"])
def test_ctrl_c_in_the_middle_of_a_step_ends_the_run_and_what_it_began(pipeline: str, tmp_path: Path) -> None:
    function = reward(faulty_rewards.Sitting(str(tmp_path)), name="sitting", timeout=600)

    def interrupt() -> None:
        eventually(lambda: len(list(tmp_path.glob("pid*"))) == 2, seconds=240)
        os.kill(os.getpid(), signal.SIGINT)

    with Dispatcher([function], workers=2) as dispatcher:
        trainer = make_trainer(
            dispatcher, tmp_path, trainer_class=GRPOTrainer, max_steps=2, prompts=16, more={"pipeline": pipeline}
        )
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        thread.join()
        eventually(lambda: not dispatcher.stats()["open_batches"], seconds=240)
    assert gone([int(path.name.removeprefix("pid")) for path in tmp_path.glob("pid*")])
