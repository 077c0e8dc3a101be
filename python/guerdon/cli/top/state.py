"""State of a dispatcher, read from JSON.

- Reading always ends: a missing or wrong part counts as not there.
- All texts are free of control characters (`printable`): they come from user code.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from guerdon.cli import terminal_text
from guerdon.cli.top.source_lines import with_source

__all__ = [
    "CallRow",
    "DispatcherState",
    "EndpointRow",
    "FunctionRow",
    "WorkerRow",
    "parsed",
    "printable",
    "read",
]

FAILED: Final = ("timeout", "error", "crashed", "cancelled")
_LONGEST: Final = 10_000
_RATE_S: Final = 10.0
"""Seconds over which the engine spreads a rate, of which fewer may have passed."""
_LIBRARY: Final = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+)/|<frozen ")

T = TypeVar("T")


@dataclass(frozen=True)
class FunctionRow:
    """A reward function: calls, outcomes by status, a second, seconds by percentile; `program` is
    where several programs are told apart."""

    name: str
    lane: str
    open_cells: int
    in_flight: int
    counts: Mapping[str, int]
    rate: float
    run_s: Mapping[str, float]
    queue_s: Mapping[str, float]
    program: str = ""

    @property
    def ok(self) -> int:
        return self.counts.get("ok", 0) + self.counts.get("abstained", 0)

    @property
    def failed(self) -> int:
        return sum(self.counts.get(status, 0) for status in FAILED)


@dataclass(frozen=True)
class CallRow:
    """A call in flight. `stack` has the outermost frame first."""

    pid: int
    function: str
    batch: int
    sample: str
    attempt: int
    phase: str
    seconds: float
    stack: tuple[str, ...]
    where: str
    no_stack: str

    @property
    def key(self) -> tuple[int, str, int, str]:
        """Returns a key that stays the same as long as the call runs."""
        return self.pid, self.function, self.batch, self.sample

    @property
    def place(self) -> str:
        """The line that it stands in, in short: the innermost that is not in a library, if there is
        one."""
        frames = [line.strip() for line in self.stack if line.startswith("  File ")]
        own = [line for line in frames if not _LIBRARY.search(line)]
        innermost = (own or frames or [self.where])[-1]
        return innermost.removeprefix("File ").replace('"', "")


@dataclass(frozen=True)
class EndpointRow:
    """An endpoint of a judge or reward service."""

    function: str
    url: str
    breaker: str
    in_flight: int
    answered: int
    failed: int
    p50_s: float | None
    program: str = ""


@dataclass(frozen=True)
class WorkerRow:
    """A worker process, and what it runs."""

    pid: int
    function: str
    rss_bytes: int


@dataclass(frozen=True)
class DispatcherState:
    """One dispatcher of a process.

    `path` is that of its script; for `counted_s` it has counted outcomes.
    """

    pid: int
    rank: int | None
    path: str
    functions: tuple[FunctionRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    endpoints: tuple[EndpointRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    counted_s: float | None = None
    stats: Mapping[str, int] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """The name of its script, or of the package that ``python -m`` ran."""
        *_, folder, name = ("", *self.path.split("/"))
        return folder if name == "__main__.py" and folder else name

    @property
    def in_flight(self) -> int:
        return sum(function.in_flight for function in self.functions)

    @property
    def rate(self) -> float:
        return sum(function.rate for function in self.functions)


def printable(text: object) -> str:
    """`text` without what a terminal could obey, and not endless."""
    return terminal_text.printable(str(text)[:_LONGEST]) if isinstance(text, (str, int, float)) else ""


def parsed(answer: bytes) -> Any:
    """The answer's JSON; None replaces values that are not finite numbers.

    Raises:
        ValueError: It is no JSON.
    """

    def finite(number: str) -> float | None:
        value = float(number)
        return value if math.isfinite(value) else None

    return json.loads(answer, parse_float=finite, parse_constant=lambda _: None)


def read(answer: bytes, pid: int) -> DispatcherState:
    """A dispatcher's state; `pid` is its process's, should it not say so itself.

    Raises:
        ValueError: This is no state.
    """
    known = parsed(answer)
    if not isinstance(known, dict):
        raise ValueError("a state is an object")
    pid = _count(known.get("pid")) or pid
    rank = known.get("rank")
    counted = _counted(known.get("now"), known.get("counted_since"))
    warming = 1.0 if counted is None else _RATE_S / min(_RATE_S, max(1.0, counted))
    return DispatcherState(
        pid=pid,
        rank=rank if isinstance(rank, int) else None,
        path=printable(known.get("program")),
        functions=tuple(
            _filled(FunctionRow, one, program="", rate=_number(one.get("rate")) * warming)
            for one in _objects(known.get("functions"))
        ),
        calls=tuple(_call(one, pid) for one in _objects(known.get("in_flight"))),
        endpoints=tuple(_filled(EndpointRow, one, program="") for one in _objects(known.get("endpoints"))),
        workers=tuple(_filled(WorkerRow, one) for one in _objects(known.get("workers"))),
        counted_s=counted,
        stats=_counts(known.get("stats")),
    )


def _counted(now: object, since: object) -> float | None:
    known = isinstance(now, (int, float)) and (since is None or isinstance(since, (int, float)))
    return max(0.0, _number(now) - _number(since, _number(now))) if known else None


def _call(known: Mapping[str, Any], pid: int) -> CallRow:
    first, count = _count(known.get("sample")), max(1, _count(known.get("samples")))
    stack = known.get("stack")
    lines = stack.split("\n") if isinstance(stack, str) else []
    lines = with_source([line for line in lines if line.startswith("  ")])
    return _filled(
        CallRow,
        known,
        pid=pid,
        sample=str(first) if count == 1 else f"{first}-{first + count - 1}",
        phase=printable(known.get("phase") or "call"),
        stack=tuple(printable(line) for line in lines),
        where=printable(known.get("place")),
    )


def _filled(kind: type[T], known: Mapping[str, Any], **given: Any) -> T:
    """A row of this kind with what is known of each field by its name, and what is given."""
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name not in given:
            given[each.name] = _READERS[str(each.type)](known.get(each.name))
    return kind(**given)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> Iterable[Mapping[str, Any]]:
    return (one for one in _list(value) if isinstance(one, dict))


def _number(value: object, otherwise: float = 0.0) -> float:
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return otherwise
    return number if math.isfinite(number) else otherwise


def _numbers(value: object) -> dict[str, float]:
    items = value.items() if isinstance(value, dict) else ()
    return {printable(name): _number(one, math.nan) for name, one in items}


def _count(value: object) -> int:
    return int(_number(value))


def _counts(value: object) -> dict[str, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {printable(name): _count(one) for name, one in items if isinstance(one, (int, float))}


def _number_or_none(value: object) -> float | None:
    number = _number(value, math.nan)
    return None if math.isnan(number) else number


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "str": printable,
    "int": _count,
    "float": _number,
    "float | None": _number_or_none,
    "Mapping[str, int]": _counts,
    "Mapping[str, float]": _numbers,
}
"""Readers of a field, by its type."""
