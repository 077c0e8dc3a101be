"""Faults during a training run: it goes on as the policies say, or ends and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from transformers import TrainerCallback

from guerdon import Dispatcher, judge, reward
from guerdon.integrations.trl import GRPOTrainer
from tests.integrations.trl import faulty_rewards
from tests.integrations.trl.tiny_trainer import make_trainer

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("trainers"),
    pytest.mark.timeout(600),  # one of them imports all that training needs in a process of its own
]

PATIENCE_S = 240.0
ROOT = Path(__file__).parents[3]


class AtStep(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    def __init__(self, step: int, do: Callable[[], object]) -> None:
        self.step = step
        self.do = do

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.do()


def wait_until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and is not waited for doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_hang_and_a_crash_in_every_step_cost_a_sample_each(tmp_path: Path) -> None:
    function = reward(faulty_rewards.Troubled(str(tmp_path)), name="troubled", timeout=5.0)
    with Dispatcher([function], workers=2, log_metrics="all") as dispatcher:
        trainer = make_trainer(dispatcher, tmp_path, trainer_class=GRPOTrainer, max_steps=2)
        trainer.train()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    for kind in ("timeout", "crashed"):
        assert [step[f"guerdon/troubled/{kind}_frac"] for step in steps] == [1 / 8, 1 / 8]
    assert [step["guerdon/troubled/failed_frac"] for step in steps] == [2 / 8, 2 / 8]
    assert [step["reward"] for step in steps] == [1.0, 1.0]


def test_a_judge_that_is_killed_and_started_again_costs_nothing(tmp_path: Path) -> None:
    """It is gone when the second step asks it, and there again a while later."""
    server = faulty_rewards.Judge(ROOT)
    grade = judge(base_url=f"{server.url}/v1", model="m", prompt="{completion}", timeout=20, retries=30)
    with Dispatcher([grade]) as dispatcher:

        def restart() -> None:
            wait_until(lambda: dispatcher.stats()["open_batches"])
            server.start()

        restarting = threading.Thread(target=restart)

        def fell() -> None:
            server.kill()
            restarting.start()

        trainer = make_trainer(
            dispatcher, tmp_path, trainer_class=GRPOTrainer, max_steps=3, more={"callbacks": [AtStep(1, fell)]}
        )
        server.start()
        try:
            trainer.train()
        finally:
            if restarting.ident is not None:
                restarting.join()
            server.kill()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [step["guerdon/judge/failed_frac"] for step in steps] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("pipeline", ["off", "one_step"])
def test_ctrl_c_in_the_middle_of_a_step_ends_the_run_and_what_it_began(pipeline: str, tmp_path: Path) -> None:
    function = reward(faulty_rewards.Sitting(str(tmp_path)), name="sitting", timeout=600)

    def interrupt() -> None:
        wait_until(lambda: len(list(tmp_path.glob("pid*"))) == 2)
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
        wait_until(lambda: not dispatcher.stats()["open_batches"])
    for path in tmp_path.glob("pid*"):
        assert not alive(int(path.name.removeprefix("pid")))


def test_a_trainer_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-m", "tests.integrations.trl.faulty_rewards", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("pid*"))) == 2 or trainer.poll() is not None)
        assert trainer.poll() is None
    finally:
        trainer.kill()
        trainer.wait()
    pids = [int(path.name.removeprefix("pid")) for path in tmp_path.glob("pid*")]
    assert len(pids) == 2
    wait_until(lambda: not any(map(alive, pids)))
