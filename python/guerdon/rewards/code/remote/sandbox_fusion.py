"""`SandboxFusion`: a server that runs programs, for `guerdon.code_reward`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from guerdon.errors import with_known_options

__all__ = ["SandboxFusion"]


@with_known_options
@dataclass(frozen=True)
class SandboxFusion:
    """A server that speaks SandboxFusion's protocol, as ``remote=`` of `guerdon.code_reward`.

    Options are checked by `guerdon.code_reward`, whose message names the reward function.

    Attributes:
        url: Its address, ``"http://localhost:8080"``; with or without ``/run_code``. A list, or a
            dict with weights, is a fleet, as ``base_url`` of `guerdon.judge`.
        language: What it calls the programs' language. Default: the name that ``language=`` has
            there (``"nodejs"`` for ``"javascript"``).
        wait: Seconds that a request may take beside the time that its case may run: on its way, and
            in the sandbox's queue.
        api_key_env: As for `guerdon.judge`, like all options below.
        api_key_file: See ``api_key_env``.
        headers: See ``api_key_env``.
        resolve: See ``api_key_env``.
        http2: See ``api_key_env``.
        ca_file: See ``api_key_env``.
        ca_only: See ``api_key_env``.
        client_cert: See ``api_key_env``.
        client_key: See ``api_key_env``.

    Examples:
        >>> from guerdon import SandboxFusion, code_reward
        >>> code_reward(remote=SandboxFusion("http://localhost:8080"))
        <code reward 'code': http://localhost:8080, timeout 10 s>
    """

    url: str | Iterable[str] | Mapping[str, float] | Iterable[tuple[str, float]]
    language: str | None = field(default=None, kw_only=True)
    wait: float = field(default=30.0, kw_only=True)
    api_key_env: str | None = field(default=None, kw_only=True)
    api_key_file: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True, repr=False)
    resolve: Literal["any", "all"] = field(default="any", kw_only=True)
    http2: bool = field(default=False, kw_only=True)
    ca_file: str | None = field(default=None, kw_only=True)
    ca_only: bool = field(default=False, kw_only=True)
    client_cert: str | None = field(default=None, kw_only=True)
    client_key: str | None = field(default=None, kw_only=True)
