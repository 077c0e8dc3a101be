"""What modules of reward functions leave behind when a worker's loader imports them.

Which carelessness is chosen by the environment: the functions stay importable elsewhere.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from typing import Any, NoReturn

KIND = os.environ.get("CARELESS", "") if "_guerdon_worker" in sys.modules else ""


class _Broken:
    """A replaced stream of which only writing works."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> NoReturn:
        raise RuntimeError("this stream can't be flushed")


if KIND in ("threads", "slow threads"):
    time.sleep(0.7 if KIND == "slow threads" else 0)
    for number in range(2):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True, name=f"heartbeat-{number}").start()
elif KIND == "device":
    obstacles: Any = sys.modules["_guerdon_worker.fork_obstacles"]
    obstacles.DEVICES = (os.environ["CARELESS_DEVICE"],)
    _device = open(os.environ["CARELESS_DEVICE"] + "0")  # noqa: SIM115 - as a driver does
elif KIND == "streams":
    sys.stdout = sys.stderr = _Broken()  # type: ignore[assignment]
elif KIND == "signals":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})


def act(completion: str) -> float:
    if completion == "die":
        os._exit(7)
    if completion == "hang":
        time.sleep(1000)
    return float(len(completion))


def look(completion: str) -> dict[str, float]:
    return {
        "score": 1.0,
        "nice": float(os.getpriority(os.PRIO_PROCESS, 0)),
        "core": float(resource.getrlimit(resource.RLIMIT_CORE)[0]),
        "child_signal_ignored": float(signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN),
        "oom": float(open("/proc/self/oom_score_adj").read()),
    }
