"""Reward functions that print. Workers import this module."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from guerdon import StatefulReward


def _say(name: str, text: str) -> float:
    """Prints in all ways, most of them without a line's end."""
    print(name, text)
    print(f"{name} {text}", end="")
    sys.stderr.write(f"{name} {text}\n")
    os.write(1, f"{name} {text}".encode())
    ctypes.CDLL(None).printf(f"{name} {text}".encode())
    return float(text)


def ayes(completion: str) -> float:
    return _say("ayes", completion)


def bees(completion: str) -> float:
    return _say("bees", completion)


def flood(completion: str) -> float:
    for number in range(int(completion)):
        print("flood", number)
    return float(completion)


def odd(completion: str) -> float:
    os.write(2, b"\r 10%\r 20%\r\n\x1b[31mred\n\xff\xfe\n\0guerdon:x\nnul\0nul\n" + b"z" * 100_000 + b"\nlast")
    return float(completion)


def redirects(completion: str) -> float:
    """Sends what it prints to a file for a while, as some libraries do."""
    kept = os.dup(1)
    own = os.open(completion, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(own, 1)
    os.write(1, b"mine\n")
    os.dup2(kept, 1)
    os.close(own)
    os.close(kept)
    return 1.0


def loses_its_output(completion: str) -> float:
    """Closes its streams and descriptors, and opens a file of its own under their numbers."""
    sys.stdout.close()
    sys.stderr.close()
    os.closerange(1, 3)
    for _ in range(2):
        os.open(completion, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return 1.0


class Silent(StatefulReward):
    """Closes the streams for good before its calls."""

    def setup(self) -> None:
        sys.stdout.close()

    def score(self, completion: str) -> float:
        return float(os.getpid())


def closes_or_prints(completion: str) -> float:
    if completion == "stream":
        sys.stderr.close()
    elif completion == "descriptor":
        os.close(2)
    else:
        print("note", file=sys.stderr, flush=True)
    return 1.0


def starts_others(completion: str) -> float:
    subprocess.run(["sh", "-c", f"echo child {completion}"], check=True)
    return float(completion)


def quiet(completion: str) -> float:
    return float(len(Path(completion).name))
