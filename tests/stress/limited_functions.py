"""Reward functions that reach their limits as their completion says. Workers import this module."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from guerdon import StatefulReward

_kept: list[bytearray] = []


def take(completion: str) -> float:
    """Takes memory: verb and bytes."""
    verb, _, rest = completion.partition(":")
    size = int(rest or "0")
    if verb == "bytes":
        return float(len(bytearray(size)) == size)
    if verb == "array":
        return float(np.ones(size // 8).sum() > 0)
    if verb in ("malloc", "abort"):  # C code that handles a failed allocation, or aborts
        malloc = ctypes.CDLL(None).malloc
        malloc.restype = ctypes.c_void_p
        failed = malloc(ctypes.c_size_t(size)) is None
        if failed and verb == "abort":
            os.abort()
        return float(failed)
    if verb == "reserve":  # address space that nobody writes to
        mmap.mmap(-1, size, prot=mmap.PROT_READ).close()
    if verb == "child":
        code = f"bytearray({size})"
        return float(subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode)
    if verb == "keep":
        _kept.append(bytearray(size))
    if verb == "pid":
        return float(os.getpid())
    return 1.0


def keep(completion: str) -> dict[str, Any]:
    """Leaves memory behind in its worker."""
    _kept.append(bytearray(b"x") * int(completion))
    return {"score": 1.0, "pid": os.getpid()}


def fits(completion: str) -> float:
    return float(len(bytearray(int(completion))) > 0)


class Large(StatefulReward):
    """Takes more in its setup than its calls may."""

    def setup(self) -> None:
        self.table = bytearray(300_000_000)
        sys.stdout.write("loading " * 1000 + "\n")

    def score(self, completion: str) -> float:
        if int(completion) < 10_000:
            sys.stdout.write("x" * int(completion) + "\n")
        return float(len(bytearray(1_000_000)) + len(self.table) > 0)


def speak(completion: str) -> float:
    """Prints: verb and bytes."""
    verb, _, rest = completion.partition(":")
    size = int(rest or "0")
    if verb == "print":
        sys.stdout.write("x" * size)
    if verb == "error":
        sys.stderr.write("x" * size)
    if verb == "descriptor":
        os.write(1, b"x" * size)
    if verb == "stdio":
        for _ in range(size // 10):
            ctypes.CDLL(None).printf(b"123456789\n")
    if verb == "child":
        subprocess.run([sys.executable, "-c", f"print('x' * ({size} - 1))"], check=True)
    while verb == "flood":
        os.write(1, b"and so on\n" * 1000)
    while verb == "deaf":
        try:
            while True:
                os.write(1, b"and so on\n" * 1000)
        except BaseException:
            continue
    return float(size)


def speak_of_group(completions: list[str]) -> list[float]:
    return [speak(completion) for completion in completions]


def look(completion: str) -> dict[str, Any]:
    """What it finds of the variables named, as the interpreter, a child and the kernel see it."""
    with open("/proc/self/environ", "rb") as file:
        started_with = os.fsdecode(file.read())
    printed = os.fsdecode(subprocess.run(["/usr/bin/env"], capture_output=True, check=True).stdout)
    names = completion.split()
    return {
        "score": float(os.getpid()),
        "found": {name: os.environ.get(name) for name in names},
        "child": {name: f"\n{name}=" in f"\n{printed}" for name in names},
        "started": {name: f"\0{name}=" in f"\0{started_with}" for name in names},
    }


class Looking(StatefulReward):
    """Finds its variable in setup."""

    def setup(self) -> None:
        self.found = os.environ.get("STRESS_API_KEY", "nothing")

    def score(self, completion: str) -> dict[str, Any]:
        return {"score": 1.0, "found": self.found}


def demand(completion: str) -> float:
    return float(len(os.environ["STRESS_API_KEY"]))


def spin(completion: str) -> dict[str, Any]:
    """A millisecond or so of work; says where it ran."""
    until = time.perf_counter() + float(completion)
    while time.perf_counter() < until:
        pass
    return {"score": 1.0, "pid": os.getpid()}


_seen: list[str] = []


def leaking(completion: str) -> dict[str, Any]:
    """Leaves its text behind, in the module and in the interpreter; obeys it."""
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    _seen.append(completion)
    if completion == "hang":
        while True:
            time.sleep(1)
    if completion == "die":
        os.abort()
    if completion == "raise":
        raise ValueError("as asked")
    return {"score": float(len(_seen)), "pid": os.getpid()}
