"""State of a dispatcher, read from JSON: plain dictionaries in the shape of `_SHAPE`.

- Reading always ends: a missing or wrong part has the value of the shape.
- All texts are free of control characters: they come from user code.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from guerdon._insight.dump import with_source
from guerdon._system.safe_text import printable

__all__ = ["State", "failed", "parsed", "read"]

State = dict[str, Any]

_FAILED: Final = ("timeout", "error", "crashed", "cancelled")
_LONGEST: Final = 10_000
_RATE_S: Final = 10.0
"""Seconds over which the engine spreads a rate, of which fewer may have passed."""
_LIBRARY: Final = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+)/|<frozen ")

# An empty object holds any numbers by name; None is a number that may be unknown; a text that has
# a line break here may have several lines.
_FUNCTION: Final[State] = {
    **dict.fromkeys(("name", "lane"), ""),
    **dict.fromkeys(("open_cells", "in_flight", "rate"), 0),
    "counts": {},
    "run_s": {},
    "queue_s": {},
}
_CALL: Final[State] = {
    **dict.fromkeys(("function", "phase", "place", "no_stack"), ""),
    **dict.fromkeys(("batch", "sample", "attempt", "seconds"), 0),
    "samples": 1,
    "stack": "\n",
}
_ENDPOINT: Final[State] = {
    **dict.fromkeys(("function", "url", "breaker"), ""),
    **dict.fromkeys(("in_flight", "answered", "failed", "deferred"), 0),
    "p50_s": None,
}
_SHAPE: Final[State] = {
    "pid": 0,
    "program": "",
    **dict.fromkeys(("rank", "now", "counted_since")),
    "calls_in_flight": 0,
    "functions": [_FUNCTION],
    "in_flight": [_CALL],
    "endpoints": [_ENDPOINT],
    "nodes": [{"name": ""}],
    "workers": [{"pid": 0, "function": "", "rss_bytes": 0}],
    "stats": {},
}


def parsed(answer: bytes) -> Any:
    """The answer's JSON; None replaces values that are not finite numbers.

    Raises:
        ValueError: It is no JSON.
    """

    def finite(number: str) -> float | None:
        value = float(number)
        return value if math.isfinite(value) else None

    return json.loads(answer, parse_float=finite, parse_constant=lambda _: None)


def read(known: object, pid: int) -> State:
    """The state in a parsed answer; `pid` is its process's, should it not say so itself.

    It adds to `_SHAPE` the ``path`` of the script; ``program`` becomes the script's name, or the
    package's after ``python -m``. Outcomes were counted for ``counted_s``.

    Raises:
        ValueError: This is not a state.
    """
    if not isinstance(known, dict):
        raise ValueError("a state is an object")
    state: State = _shaped(_SHAPE, known)
    state["pid"] = state["pid"] or pid
    now, since = state["now"], state["counted_since"]
    counted = None if now is None else max(0.0, now - (now if since is None else since))
    for function in state["functions"]:
        function["rate"] *= 1.0 if counted is None else _RATE_S / min(_RATE_S, max(1.0, counted))
    path: str = state["program"]
    *_, folder, name = ("", *path.split("/"))
    program = folder if name == "__main__.py" and folder else name
    state |= {"counted_s": counted, "path": path, "program": program}
    for call in state["in_flight"]:
        _complete(call, state["pid"])
    _count_running(state)
    return state


def failed(function: State) -> int:
    """The outcomes of a function that are failures."""
    return sum(int(function["counts"].get(status, 0)) for status in _FAILED)


def _count_running(state: State) -> None:
    """Sets ``in_flight`` of each function to the samples that run, where the state lists all calls:
    the engine's own figure counts what workers have in hand by frames, or get when they start."""
    if state["calls_in_flight"] > len(state["in_flight"]):
        return
    for function in state["functions"]:
        mine = [call for call in state["in_flight"] if call["function"] == function["name"]]
        starts = function["lane"] in ("process", "code") and not (state["workers"] or state["nodes"])
        if mine or starts:  # kernels are not listed
            function["in_flight"] = sum(max(1, int(call["samples"])) for call in mine)


def _complete(call: State, pid: int) -> None:
    """Adds the process, the samples in words, the lines of the stack, and the place: the innermost
    frame outside of libraries, if there is any."""
    first, count = int(call["sample"]), max(1, int(call["samples"]))
    call |= {"pid": pid, "sample": str(first) if count == 1 else f"{first}-{first + count - 1}"}
    call["stack"] = with_source(call["stack"]).splitlines()
    frames = [line.strip() for line in call["stack"] if line.startswith("  File ")]
    own = [line for line in frames if not _LIBRARY.search(line)]
    call["at"] = (own or frames or [call["place"]])[-1].removeprefix("File ").replace('"', "")
    # The key stays the same as long as the call runs.
    call["key"] = (pid, call["function"], call["batch"], call["sample"])


def _shaped(shape: Any, value: object) -> Any:
    """The value in a shape."""
    if isinstance(shape, list):
        return [_shaped(shape[0], one) for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    if isinstance(shape, dict):
        known = value if isinstance(value, dict) else {}
        if shape:
            return {name: _shaped(inner, known.get(name)) for name, inner in shape.items()}
        return {printable(name): _number(one, 0) for name, one in known.items() if isinstance(one, (int, float))}
    if isinstance(shape, str):
        return printable(str(value)[:_LONGEST], keep=shape) if isinstance(value, (str, int, float)) else ""
    return _number(value, shape)


def _number(value: object, otherwise: float | None) -> Any:
    try:
        finite = isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        finite = False
    return value if finite else otherwise
