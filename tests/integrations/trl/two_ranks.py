"""One rank of a distributed run; started from the tests, by torchrun's agent."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from guerdon import Dispatcher, Limit, reward
from guerdon._system.cpu_count import usable_cores
from tests.integrations.trl import reward_functions


def rank_one_fails(completions: list[Any], **kwargs: Any) -> list[float]:
    if os.environ["RANK"] == "1":
        raise ValueError("on this rank")
    return [1.0] * len(completions)


def always_fails(completions: list[Any], **kwargs: Any) -> list[float]:
    raise ValueError("on every rank")


@reward(lane="thread")
def hard_prompt(completion: Any, answer: str, trainer_state: Any) -> float:
    """Fails on each rank in the first batch, as on a prompt whose answers take too long."""
    if trainer_state.global_step == 0 and next(HARD) % 8 < 5:
        raise TimeoutError("too hard")
    return 1.0


HARD = itertools.count()


def make_limited(folder: Path) -> Any:
    """Records when it is called, at an endpoint limited to 10 calls a second over all ranks."""

    @reward(name="limited", lane="thread", limit=Limit(rpm=600, key=str(folder)))
    def limited(completion: Any) -> float:
        with (folder / "calls").open("a") as file:
            file.write(f"{time.monotonic()}\n")
        return 1.0

    return limited


def run(
    what: str,
    last: Any,
    folder: Path,
    *,
    threaded: bool = False,
    cluster: Literal["host"] | None = None,
    **options: Any,
) -> None:
    """Trains, and writes down what came of it, an error too."""
    from tests.integrations.trl.tiny_trainer import make_trainer, rewards_of

    rewards: list[Any] = [reward_functions.vowels, reward_functions.group_size, reward_functions.lengths, last]
    report: dict[str, Any] = {"cores": usable_cores()}
    with Dispatcher(rewards, cluster=cluster) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, folder / "out", prompts=16, **options)
        started = time.monotonic()
        try:
            if threaded:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(trainer.train).result()
            else:
                trainer.train()
            report["rewards"] = rewards_of(trainer)
            report["completions"] = list(trainer._logs["completion"])
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"
        if cluster is not None:
            report["engines"] = list(dispatcher.stats()["nodes"])
        report.update(seconds=time.monotonic() - started, workers=dispatcher.workers, step=trainer.state.global_step)
        (folder / f"{what}{os.environ['RANK']}.json").write_text(json.dumps(report))


def main(folder: Path) -> None:
    run("works", make_limited(folder), folder)
    run("shared", reward(lambda completion: 1.0, name="last", lane="thread"), folder, cluster="host")
    run("hard", hard_prompt, folder)
    run("threaded", reward(rank_one_fails, rowwise=True, on_failure="raise"), folder, threaded=True)
    run("fails", reward(rank_one_fails, rowwise=True, max_failure_rate=0.25), folder, max_steps=8)
    run("always", always_fails, folder)
    sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
