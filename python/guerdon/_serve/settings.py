"""Settings of the server from the command line, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MOST_BODY_BYTES: Final = 64 << 20
"""Bound of one request."""
MOST_BODIES_BYTES: Final = 1 << 30
"""Bound of the bodies of all requests together that are read or scored."""
MOST_SAMPLES: Final = 16384
DRAIN_TIMEOUT_S: Final = 30.0
IDLE_TIMEOUT_S: Final = 120
"""After which a connection is closed that was answered and brings no other request."""

BACKLOG: Final = 4096
"""Connections that the operating system holds until they are accepted."""


@dataclass(frozen=True)
class ServerSettings:
    """Settings for serving requests.

    Attributes:
        tokens: Any of them lets a request in; none: no token is asked for.
        max_samples: In flight and queued; requests beyond that get 429.
        drain_timeout: Seconds that requests in flight have after SIGTERM.
        max_body_bytes, max_bodies_bytes: As the constants above.
    """

    tokens: tuple[bytes, ...] = field(default=(), repr=False)
    max_samples: int = MOST_SAMPLES
    drain_timeout: float = DRAIN_TIMEOUT_S
    max_body_bytes: int = MOST_BODY_BYTES
    max_bodies_bytes: int = MOST_BODIES_BYTES
