"""One rank of a host for the tests: makes a dispatcher, and does what lines on its standard input
say.

Usage: python -m tests.cluster.shared_engine.rank OPTIONS, a JSON object for the dispatcher. Each
line is a JSON object: ``{"texts": […], "seconds": […]}`` scores a batch, ``{"fork": true}`` forks a
child that sleeps, ``{"close": true}`` closes the dispatcher. Each is answered by one line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, Limit, Status, http_reward, reward
from guerdon._lanes.remote.shared_engine import cluster as shared


@reward(timeout=60)
def waits(text: str, seconds: float, log: str) -> float:
    """A core's work, faked by waiting; what ran is in the log."""
    note(log, text)
    if text.startswith("poison"):
        die(text)
    time.sleep(seconds)
    return float(len(text))


def note(log: str, line: str) -> None:
    """Appends a line; whole, whoever else does."""
    with open(log, "ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def die(text: str) -> None:
    """Kills this worker; before that the engine that it works for, if the text says so."""
    process = os.getpid()
    while "engine" in text and process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        if b"guerdon: the engine of this host" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
            os.kill(process, signal.SIGKILL)
            break
    os.kill(os.getpid(), signal.SIGKILL)


@reward(limit=Limit(concurrency=1))
def alone(text: str, seconds: float, log: str) -> float:
    begun = time.monotonic()
    time.sleep(seconds)
    note(log, f"{begun} {time.monotonic()}")
    return float(len(text))


@reward
def rank_seen(text: str) -> float:
    """The rank that a worker takes itself for; -1 for none."""
    return float(os.environ.get("RANK", -1))


def main(options: dict[str, Any]) -> None:
    """Serves standard input to its end."""
    shared.SILENCE_S = options.pop("silence", shared.SILENCE_S)
    log = options.pop("log")
    heard: list[str] = []
    warnings.showwarning = lambda message, *_, **__: heard.append(str(message))
    warnings.simplefilter("always")
    functions: list[Any] = [alone if options.pop("alone", False) else waits, rank_seen]
    if url := options.pop("judge", None):
        functions.append(http_reward(url, columns=["text"], name="judged", limit=Limit(rpm=1200)))
    with Dispatcher(functions, cluster="host", **options) as dispatcher:
        for line in sys.stdin:
            asked = json.loads(line)
            answer: dict[str, Any] = {}
            if "texts" in asked:
                texts = asked["texts"]
                begun = time.monotonic()
                result = dispatcher.score(completions=texts, seconds=asked["seconds"], log=[log] * len(texts))
                answer = {
                    "took": time.monotonic() - begun,
                    "rewards": result.rewards[:, :, 0].ravel().tolist(),
                    "ranks": result.rewards[:, :, 1].ravel().tolist(),
                    "status": sorted({Status(status).name for status in result.status.ravel().tolist()}),
                    "statuses": [Status(status).name for status in result.status[:, :, 0].ravel().tolist()],
                }
            if asked.get("fork"):
                answer["child"] = os.fork()
                if answer["child"] == 0:
                    time.sleep(60)
                    os._exit(0)
            if asked.get("close"):
                dispatcher.close()
            time.sleep(0.05)  # warnings come on a thread
            nodes = dispatcher.stats().get("nodes", {})
            answer |= {"workers": dispatcher.worker_pids(), "warnings": heard, "nodes": nodes}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
