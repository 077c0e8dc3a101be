"""Trusted servers and client certificates: options of TLS, checked.

Keys of certificates are read when the engine starts, like API keys: a plan has their files' names.
"""

from __future__ import annotations

import ipaddress
import os
import warnings
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from guerdon._functions.options import flag
from guerdon._lanes.http.api_key import ApiKey
from guerdon._lanes.http.server import Server
from guerdon.errors import GuerdonWarning, RegistrationError

__all__ = ["tls_options", "warn_of_plain_keys"]


def tls_options(function: str, url: str, server: Server) -> dict[str, Any]:
    """The options of TLS of a server, as a plan has them.

    Raises:
        RegistrationError: They don't go together.
    """
    wrong = f"reward function {function!r}: "
    files: dict[str, str | None] = {}
    for option in ("ca_file", "client_cert", "client_key"):
        file: object = getattr(server, option)
        if file is not None and not isinstance(file, (str, os.PathLike)):
            raise RegistrationError(f"{wrong}{option}={type(file).__name__}(…): expected the name of a file.")
        files[option] = None if file is None else os.fspath(file)
    only = flag(function, "ca_only", server.ca_only)
    if only and files["ca_file"] is None:
        raise RegistrationError(f"{wrong}ca_only=True needs ca_file=, the authorities to trust.")
    if files["client_key"] is not None and files["client_cert"] is None:
        raise RegistrationError(f"{wrong}client_key= is the key of client_cert=, which is not given.")
    if (files["client_cert"] is not None or only) and urlsplit(url).scheme.lower() != "https":
        raise RegistrationError(
            f"{wrong}client_cert= and ca_only= need an https:// address: http:// has no certificates."
        )
    return {**files, "ca_only": only}


def warn_of_plain_keys(function: str, urls: Iterable[str], key: ApiKey) -> None:
    """Warns of a key that would leave this machine without TLS, once for all servers."""
    servers = [urlsplit(url) for url in urls]
    hosts = [one.hostname or "" for one in servers if one.scheme.lower() == "http"]
    hosts = [host for host in dict.fromkeys(hosts) if not _is_loopback(host)]
    if key == ApiKey() or not hosts:
        return
    where = hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more"
    warnings.warn(
        f"reward function {function!r}: its API key goes to {where} over plain http, where anyone on the way can read it. Use an "
        "https:// address, or leave the key out where the server needs none.",
        GuerdonWarning,
        stacklevel=6,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
