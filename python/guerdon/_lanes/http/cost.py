"""Cost, spending cap and cache of a judge's requests: the options ``price=``, ``max_cost=`` and
``keep_answers=``.

- A cap is of one run: of this engine, or of all processes of a host that share the keys of limits.
- The spending of a shared cap counts until the last process that shares it has ended; where the run
  has a name (`guerdon._system.launcher.run_id`), until that run's end, restarts included.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from guerdon._functions import options as checked
from guerdon._system.launcher import run_id
from guerdon._system.units import number
from guerdon.errors import RegistrationError
from guerdon.limits import folder

__all__ = ["Cost", "cap", "of_options"]

_KINDS = ("input", "cached", "cache_write", "output")
# Fields of a request that bound the tokens of its answer.
_BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass(frozen=True)
class Cost:
    """The options of one function.

    Attributes:
        price: Of a million tokens: input, cached, written to the cache, output. None without.
        max_cost: The most that the requests of a run may cost.
        keep_answers: Whether what the judge said goes into `RewardBatch.extra`.
        longest_answer: Tokens that an answer has at most, where the request says so.
    """

    price: tuple[float, float, float, float] | None = None
    max_cost: float | None = None
    keep_answers: bool = False
    longest_answer: int | None = None

    def tariff(self, function: str, key: str | None) -> dict[str, Any]:
        """Returns the form for the engine.

        Args:
            function: Its name.
            key: Of the function's limit.
        """
        own = None if self.max_cost is None else cap(self.max_cost, f"of {function!r}", [] if key is None else [key])
        return {
            "price": None if self.price is None else dict(zip(_KINDS, self.price, strict=True)),
            "cap": own,
            "keep_answers": self.keep_answers,
            "longest_answer": self.longest_answer,
        }


def of_options(
    function: str, price: object, max_cost: object, keep_answers: object, request: Mapping[str, object]
) -> Cost:
    """The options, checked.

    Args:
        request: The JSON of a request.

    Raises:
        RegistrationError: One is wrong; the message names it.
    """
    prices = None if price is None else _price(function, price)
    where = f"reward function {function!r}: "
    most = None if max_cost is None else number(max_cost)
    if most is not None and not 0 < most < math.inf:
        raise RegistrationError(f"{where}max_cost={max_cost!r}: expected a number above 0, in the currency of price=.")
    if most is not None and prices is None:
        raise RegistrationError(
            f"{where}max_cost={most:g} without price=, by which cost is counted: price={{'input': …, 'output': …}}, of a "
            "million tokens."
        )
    return Cost(prices, most, checked.flag(function, "keep_answers", keep_answers), _longest_answer(request))


def _longest_answer(request: Mapping[str, object]) -> int | None:
    """The tokens that a request bounds its answer to, also in an object of it (``parameters``)."""
    for tokens in (number(request[bound]) for bound in _BOUNDS if bound in request):
        if 0 <= tokens < 1 << 32:
            return math.ceil(tokens)
    inner = (_longest_answer(value) for value in request.values() if isinstance(value, Mapping))
    return next((tokens for tokens in inner if tokens is not None), None)


def cap(most: float, whose: str, keys: Iterable[str]) -> dict[str, Any]:
    """A cap for the engine, shared with the processes of this host that use the same keys, if there
    are any."""
    shared = None
    if named := sorted(set(keys)):
        run = run_id()
        parts = "\0".join((whose, run, *named)).encode("utf-8", "surrogatepass")
        path = folder() / f"{hashlib.sha256(parts).hexdigest()[:32]}.cost"
        shared = {"path": bytes(path), "kept": bool(run)}
    return {"max_cost": most, "whose": whose, "shared": shared}


def _price(function: str, given: object) -> tuple[float, float, float, float]:
    wrong = RegistrationError(
        f"reward function {function!r}: price={given!r}: expected a dict with what a million tokens cost, as in "
        "{'input': 0.4, 'cached': 0.1, 'output': 1.6}; 'cached' may be left out, and 'cache_write'."
    )
    if not isinstance(given, Mapping) or not {"input", "output"} <= set(given) <= set(_KINDS):
        raise wrong
    found = [number(given.get(kind, given["input"])) for kind in _KINDS]
    if not all(0 <= one < math.inf for one in found):
        raise wrong
    return found[0], found[1], found[2], found[3]
