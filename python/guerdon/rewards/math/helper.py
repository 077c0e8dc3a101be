"""The worker that plain calls ask: a dispatcher of this process's own, made when first needed.

- A pair that takes too long ends with its worker. It has no reward; where only True and False can
  be answered it counts as different, as math-verify's own timeouts do. Either is logged.
- A worker of a dispatcher has a timeout already: math-verify is asked there and then.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from guerdon._functions.stateful import StatefulReward
from guerdon.rewards.math.verify import load, missing, score

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

__all__ = ["ask", "close"]

TIMEOUT_S: Final = 30.0
_LOG: Final = logging.getLogger("guerdon")
# By process: a fork has no use for its parent's. Written by `_dispatcher` and `close`, locked.
_lock = threading.Lock()
_dispatchers: dict[int, Dispatcher] = {}


def ask(pairs: list[tuple[str, str]], *, reward: bool) -> list[float | None]:
    """Returns math-verify's scores for pairs of gold answer and answer.

    Args:
        reward: As ``accuracy_reward`` reads both; what has no answer in time is then None, and
            else 0.0.

    Raises:
        ImportError: math-verify is not installed.
    """
    why = missing()
    if why is not None:
        raise ImportError(why)
    if _is_worker():
        return [score(gold, answer, reward=reward) for gold, answer in pairs]
    from guerdon.results.status import Status

    result = _dispatcher().score(
        completions=[answer for _, answer in pairs], gold=[gold for gold, _ in pairs], as_reward=[reward] * len(pairs)
    )
    values: list[float | None] = []
    for value, status in zip(result.rewards.ravel().tolist(), result.status.ravel().tolist(), strict=True):
        failed = status not in (Status.OK, Status.ABSTAINED)
        values.append(0.0 if failed and not reward else value if status == Status.OK else None)
    means = "so that there is no reward" if reward else "which counts as different"
    for failure in result.failures():
        # It catches the fault of a pair.
        if failure.status == Status.ERROR:
            raise ImportError(f"math-verify can't run: {failure.reason}")
        _LOG.warning("math-verify gave no answer, %s: %s", means, failure.reason)
    return values


class _Pairs(StatefulReward):
    def setup(self) -> None:
        load()  # SymPy takes seconds, which count for no pair

    def score(self, text: str, gold: str, as_reward: bool) -> float | None:
        return score(gold, text, reward=as_reward)


def _dispatcher() -> Dispatcher:
    from guerdon.dispatcher import Dispatcher
    from guerdon.functions import reward

    with _lock:
        if os.getpid() not in _dispatchers:
            asked = reward(_Pairs(), name="math_verify", lane="process", timeout=TIMEOUT_S, max_failure_rate=1.0)
            _dispatchers[os.getpid()] = Dispatcher([asked], workers=1)
        return _dispatchers[os.getpid()]


def close() -> None:
    """Ends the worker; the next call that needs one makes another."""
    with _lock:
        for dispatcher in _dispatchers.values():
            dispatcher.close()
        _dispatchers.clear()


def _is_worker() -> bool:
    return "_guerdon_worker" in sys.modules
