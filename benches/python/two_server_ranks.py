"""One rank of the runs of `bench_server_ranks` (torchrun): TRL's trainer, and a fake of the server
that rank 0 sends requests to."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, Limit, reward
from tests.integrations.trl.pipeline import server_ranks

STEPS, CALL_S, GENERATION_S = 5, 0.2, 2.0


class Server(server_ranks.Server):
    """Completions end one after another, over two seconds."""

    def generate(self, *args: Any, **named: Any) -> dict[str, Any]:
        time.sleep(self._random.random() * GENERATION_S)
        return super().generate(*args, **named)


@reward(limit=Limit(concurrency=1))
async def judge(text: str) -> float:
    await asyncio.sleep(CALL_S)
    return 1.0


def main(folder: Path) -> None:
    server_ranks.Server = Server  # type: ignore[misc]
    server_ranks.stand_in()
    warnings.simplefilter("ignore")
    waited = {}
    for name in ("off", "overlap"):
        with Dispatcher([judge]) as dispatcher:
            trainer = server_ranks.make(dispatcher, folder / "out", name, server_ranks.SIZES, max_steps=STEPS)
            trainer.train()
        entries = [entry for entry in trainer.state.log_history if "loss" in entry]
        waited[name] = [entry["guerdon/pipeline/wait_s"] for entry in entries]
    (folder / f"rank{server_ranks.rank()}.json").write_text(json.dumps(waited))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
