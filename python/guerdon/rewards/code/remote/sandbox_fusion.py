"""`SandboxFusion`: a server that runs programs, for `guerdon.code_reward`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from guerdon._lanes.http.server import Server
from guerdon.errors import with_known_options

__all__ = ["SandboxFusion"]


@with_known_options
@dataclass(frozen=True)
class SandboxFusion:
    """A server that speaks SandboxFusion's protocol, as ``remote=`` of `guerdon.code_reward`.

    Options are checked by `guerdon.code_reward`, whose message names the reward function.

    Attributes:
        server: Its address, ``"http://localhost:8080"``, with or without ``/run_code``; a list, or
            a dict with weights, is a fleet. Or a `guerdon.Server` without ``hedge_after``,
            ``price`` and ``max_cost``.
        language: What it calls the programs' language. Default: the name that ``language=`` has
            there (``"nodejs"`` for ``"javascript"``).
        wait: Seconds that a request may take beside the time that its case may run: on its way, and
            in the sandbox's queue.

    Examples:
        >>> from guerdon import SandboxFusion, code_reward
        >>> code_reward(remote=SandboxFusion("http://localhost:8080"))
        <code reward 'code': http://localhost:8080, timeout 10 s>
    """

    server: str | Sequence[str] | Mapping[str, float] | Sequence[tuple[str, float]] | Server
    language: str | None = field(default=None, kw_only=True)
    wait: float = field(default=30.0, kw_only=True)
