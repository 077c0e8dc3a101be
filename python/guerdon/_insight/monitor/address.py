"""``metrics_port``: where the metrics are served."""

from __future__ import annotations

import re
from typing import Final

from guerdon._system.units import integer
from guerdon.errors import RegistrationError

LOOPBACK: Final = "127.0.0.1"
_MOST: Final = 65535
_GIVEN: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/]+):([0-9]{1,5})")


def checked(value: object) -> int | str | None:
    """A port on loopback, or ``"host:port"``; None = no metrics are served.

    Raises:
        RegistrationError: It is neither.
    """
    if value is None:
        return None
    port = integer(value)
    if port is not None and 0 <= port <= _MOST:
        return port
    if isinstance(value, str) and (match := _GIVEN.fullmatch(value)) and int(match[2]) <= _MOST:
        return value
    raise RegistrationError(
        f"metrics_port={value!r}: expected a port from 0 (any that is free) to {_MOST}, which is served on "
        f"{LOOPBACK}, or an address with a port such as '0.0.0.0:9100'."
    )


def resolved(given: int | str, local_rank: int) -> str:
    """The numeric address for this rank: each rank of a host takes the next port, 0 stays 0.

    Raises:
        OSError: The name of the host can't be found, or there is no such port.
    """
    import socket  # not by `import guerdon`

    host, port = (LOOPBACK, given) if isinstance(given, int) else _parts(given)
    if port:
        port += local_rank
    if port > _MOST:
        raise OSError(f"port {port} for local rank {local_rank} is above {_MOST}")
    family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return f"[{place[0]}]:{port}" if family == socket.AF_INET6 else f"{place[0]}:{port}"


def _parts(given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    return host.strip("[]"), int(port)
