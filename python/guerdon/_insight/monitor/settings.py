"""Settings of the monitor for the engine, and its messages to the user."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict

from guerdon._insight.monitor.address import resolved
from guerdon._insight.monitor.forks import close_in_children
from guerdon._insight.monitor.sockets import NoSocketError, new_socket
from guerdon._system import launcher
from guerdon._system.warning import warn

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import Engine

_NOT_SERVED = (
    "metrics_port={given!r}: metrics are not served: {problem}. Everything else works. Choose another port, or 0 for any "
    "that is free."
)


class MonitorConfig(TypedDict):
    """Settings of a monitor for the engine."""

    rank: int
    host: str
    python: str
    program: str
    socket: bytes | None
    """The place of the Unix socket of the live state; None: none is served."""
    address: str | None
    """Numeric, with a port, for the metrics; None: they are not served."""
    fleets: Sequence[tuple[str, int, str]]
    """Name, function, and what was added to its addresses."""
    judges: Sequence[tuple[bool, bool, bool]]
    """Three flags of each function: it sends requests, these use tokens, they have a price."""
    isolations: Sequence[tuple[str, str, str, str]]
    """Name, level, active layers and missing layers of each code reward."""


class IsolationLevel(Protocol):
    """Isolation of a code reward's programs."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def held(self) -> Sequence[tuple[str, str]]:
        """The layers that hold, each with a word on it."""

    @property
    def missing(self) -> Sequence[tuple[str, str]]:
        """The layers that this host lacks, each with the reason."""


class Monitor:
    """The monitor of one engine: its settings, and its addresses that can't be used."""

    def __init__(self, specs: Sequence[FunctionSpec], metrics_port: int | str | None) -> None:
        self._given = metrics_port
        self._socket_problem: str | None = None
        self._address_problem: str | None = None
        path = address = None
        try:
            path = new_socket()
        except NoSocketError as error:
            self._socket_problem = str(error)
        if metrics_port is not None:
            try:
                address = resolved(metrics_port, launcher.local_rank())
            except (OSError, UnicodeError) as error:  # a name that the resolver refuses
                self._address_problem = str(error)
        close_in_children()
        self._levels = {spec.name: level for spec in specs if (level := _level(spec)) is not None}
        self.config = _config(specs, path, address, self._levels)

    def report(self, engine: Engine) -> None:
        """Reports once the fences of code rewards and the address of the metrics, or why they have
        none."""
        if self._levels and launcher.local_rank() == 0:
            import logging  # not by `import guerdon`

            for name, level in self._levels.items():
                logging.getLogger("guerdon").info("%s: isolation of programs: %s", name, level)
        if self._given is None:
            return
        address, problem = engine.places()["metrics"]
        problem = problem or self._address_problem
        if problem is not None:
            warn(_NOT_SERVED.format(given=self._given, problem=problem))
        else:
            import logging  # not by `import guerdon`

            logging.getLogger("guerdon").info("metrics at http://%s/metrics", address)

    def stats(self, engine: Engine) -> dict[str, str]:
        """Returns its addresses for `Dispatcher.stats`."""
        path, problem = engine.places()["state"]
        served = {"state_socket": path or f"none: {problem or self._socket_problem}"}
        if self._given is not None:
            address, problem = engine.places()["metrics"]
            served["metrics_address"] = address or f"none: {problem or self._address_problem}"
        return served


def _level(spec: FunctionSpec) -> IsolationLevel | None:
    """The level that holds for the programs of a code reward; None of other functions."""
    # Objects of ours have this attribute only there.
    return getattr(spec.item, "level", None) if spec.is_engine_made else None


def _config(
    specs: Sequence[FunctionSpec], path: str | None, address: str | None, levels: Mapping[str, IsolationLevel]
) -> MonitorConfig:
    fleets = [(spec.name, index, spec.fleet.path) for index, spec in enumerate(specs) if spec.fleet is not None]
    return MonitorConfig(
        rank=launcher.rank(),
        host=socket.gethostname(),
        python=platform.python_version(),
        program=os.fsencode((sys.argv or [""])[0]).decode(errors="replace"),
        socket=None if path is None else os.fsencode(path),
        address=address,
        fleets=fleets,
        judges=[_requests(spec) for spec in specs],
        isolations=[
            (
                name,
                level.name,
                ",".join(layer for layer, _ in level.held),
                ",".join(layer for layer, _ in level.missing),
            )
            for name, level in levels.items()
        ],
    )


def _requests(spec: FunctionSpec) -> tuple[bool, bool, bool]:
    """Returns whether a function sends requests, whether these use tokens, and whether they have a
    price."""
    plans = spec.plans
    return bool(plans), spec.uses_tokens, all(plan.cost.price is not None for plan in plans)
