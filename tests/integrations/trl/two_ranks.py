"""One rank of a distributed run; started by torchrun from the tests."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, Limit, reward
from guerdon._cpu_count import usable_cores
from tests.integrations.trl import reward_functions


def rank_one_fails(completions: list[Any], **kwargs: Any) -> list[float]:
    if os.environ["RANK"] == "1":
        raise ValueError("on this rank")
    return [1.0] * len(completions)


def make_limited(folder: Path) -> Any:
    """Records when it is called, at an endpoint limited to 10 calls a second over all ranks."""

    @reward(name="limited", lane="thread", limit=Limit(rpm=600, key=str(folder)))
    def limited(completion: Any) -> float:
        with (folder / "calls").open("a") as file:
            file.write(f"{time.monotonic()}\n")
        return 1.0

    return limited


def run(what: str, last: Any, folder: Path) -> None:
    """Trains, and writes down what came of it, an error too, which goes on."""
    from tests.integrations.trl.tiny_trainer import make_trainer, rewards_of

    rewards: list[Any] = [reward_functions.vowels, reward_functions.group_size, reward_functions.lengths, last]
    report: dict[str, Any] = {"cores": usable_cores()}
    with Dispatcher(rewards) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, folder / "out", prompts=16)
        started = time.monotonic()
        try:
            trainer.train()
            report["rewards"] = rewards_of(trainer)
            report["completions"] = list(trainer._logs["completion"])
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            report.update(seconds=time.monotonic() - started, workers=dispatcher.workers)
            (folder / f"{what}{os.environ['RANK']}.json").write_text(json.dumps(report))


def main(folder: Path) -> None:
    run("works", make_limited(folder), folder)
    run("fails", rank_one_fails, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
