"""One rank of a distributed run with pipelines; started from the tests, by torchrun's agent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, group_reward, reward
from tests.integrations.trl import reward_functions
from tests.integrations.trl.pipeline import server_ranks

# 6 samples a rank and groups of 4: one group lies on both ranks.
ACROSS_RANKS = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "num_generations": 4, "prompts": 9}
SPLIT = {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 2, "num_generations": 4, "prompts": 18}
# By name: the pipeline and the sizes of a run.
RUNS: dict[str, tuple[Any, dict[str, int]]] = {
    "split off": ("off", SPLIT),
    "split mini_batch": ("mini_batch", SPLIT),
    "split all": ("all", SPLIT),
    "across off": ("off", ACROSS_RANKS),
    "across one_step": ("one_step", ACROSS_RANKS),
}


@reward(lane="thread", max_failure_rate=0.1)
def on_rank_one(text: str, trainer_state: Any) -> float:
    if os.environ["RANK"] == "1" and trainer_state.global_step:
        raise ValueError("on this rank")
    return 1.0


@reward(lane="thread")
def share(text: str) -> float:
    return 1.0 + reward_functions.share(text, "aeiou")


@group_reward(lane="thread")
def place_in_group(prompts: list[Any], completions: list[Any], log_extra: Any) -> list[float]:
    """The place of each in its group; told to the test with the whole group."""
    reward_functions._write(f"groups{os.environ['RANK']}", {"prompts": prompts, "completions": completions})
    log_extra("text", completions)
    return [float(place) for place in range(len(prompts))]


def run(name: str, rewards: list[Any], folder: Path) -> dict[str, Any]:
    from tests.integrations.trl.recording_trainer import make_recording_trainer

    pipeline, sizes = RUNS[name]
    with Dispatcher(rewards, workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, folder / "out", pipeline, max_steps=3, ends=16, **sizes)
        return server_ranks.watched(trainer, [dispatcher], trainer.train)


def changing_on_rank_one(folder: Path) -> dict[str, Any]:
    """Rewards of a class that gives functions other completions on one rank, in TRL and in ours."""
    import trl

    from guerdon.integrations.trl import pipelined
    from tests.integrations.trl.tiny_trainer import make_trainer, rewards_of

    class ChangingOnRankOne(trl.GRPOTrainer):  # type: ignore[misc]
        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
            given = ["", *completions[1:]] if os.environ["RANK"] == "1" else completions
            return super()._calculate_rewards(inputs, prompts, given, ids)

    rewards: list[Any] = []
    with Dispatcher([share], workers=1) as dispatcher:
        for mode in (None, "overlap", "one_step"):
            kind, more = (ChangingOnRankOne, {}) if mode is None else (pipelined(ChangingOnRankOne), {"pipeline": mode})
            functions = dispatcher if more else dispatcher.reward_funcs
            sizes: dict[str, Any] = {**SPLIT, "ends": 16, "learning_rate": 0.0}
            trainer = make_trainer(functions, folder / "out", trainer_class=kind, more=more, **sizes)
            trainer.train()
            rewards.append(rewards_of(trainer)["share"])
        open_batches = dispatcher.stats()["open_batches"]
    return {"rewards": rewards, "open": open_batches}


def main(folder: Path) -> None:
    from guerdon.integrations.trl import Pipeline
    from tests.integrations.trl.recording_trainer import make_recording_trainer

    functions = [reward_functions.vowels, reward_functions.waiting, place_in_group]
    reports: dict[str, Any] = {name: run(name, functions, folder) for name in RUNS}
    reports["failing"] = run("split all", [reward_functions.vowels, on_rank_one], folder)
    reports["changing"] = changing_on_rank_one(folder)
    with Dispatcher([reward_functions.vowels], workers=1) as dispatcher:
        try:
            make_recording_trainer(dispatcher, folder / "out", Pipeline(mini_batch=True), **ACROSS_RANKS)
        except ValueError as error:
            reports["refused"] = {"error": str(error)}
    reports["server"] = server_ranks.run(folder / "server")
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
