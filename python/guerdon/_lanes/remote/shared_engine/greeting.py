"""First records of a new connection, from both ends: one record of a fixed length each, so that
nothing of what follows is read too early.

A record that isn't ours, or has another protocol, is refused with its contents.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any, Final

from guerdon._lanes.remote.shared_engine.meeting import JoinError

__all__ = ["RECORD_BYTES", "TIMEOUT_S", "checked", "pack", "peer_of", "unpack"]

PROTOCOL: Final = 1
RECORD_BYTES: Final = 512
TIMEOUT_S: Final = 5.0
_MARK: Final = b"guerdon host "
# struct ucred: process, user, group. Numbers of users go to 2**32, as of those in other namespaces.
_CREDENTIALS: Final = struct.Struct("iII")


def pack(**fields: Any) -> bytes:
    """A record. A text that is too long loses its end."""
    record = _record(fields)
    while len(record) > RECORD_BYTES:
        name, longest = max(
            ((name, value) for name, value in fields.items() if isinstance(value, str) and name != "digest"),
            key=lambda field: len(json.dumps(field[1])),
            default=("", ""),
        )
        if not longest:
            raise ValueError(f"a greeting of {len(record)} bytes")
        # A letter takes up to twelve bytes.
        fields[name] = longest[: -max(1, (len(record) - RECORD_BYTES) // 12)]
        record = _record(fields)
    return record.ljust(RECORD_BYTES)


def _record(fields: dict[str, Any]) -> bytes:
    return _MARK + json.dumps({"protocol": PROTOCOL, **fields}).encode()


def unpack(record: bytes) -> dict[str, Any]:
    """The fields of a record.

    Raises:
        JoinError: It is not a record of this protocol.
    """
    try:
        fields = json.loads(record.removeprefix(_MARK)) if record.startswith(_MARK) else None
    except (ValueError, RecursionError):  # brackets, on a stack that is deep already
        fields = None
    if not isinstance(fields, dict):
        raise JoinError(f"what came is no greeting: {record[:40]!r}")
    return fields


def checked(record: bytes, digest: bytes) -> dict[str, Any]:
    """The fields of a record of this protocol and of these functions.

    Raises:
        JoinError: It is of other functions, or it is a refusal.
    """
    fields = unpack(record)
    if fields.get("refused"):
        raise JoinError(str(fields["refused"]))
    if fields.get("protocol") != PROTOCOL:
        raise JoinError(f"the other end has protocol {fields.get('protocol')!r}, this one {PROTOCOL}")
    if fields.get("digest") != digest.hex():
        raise JoinError("the other end has other functions or options")
    return fields


def peer_of(connection: socket.socket) -> int:
    """The process at the other end.

    Raises:
        JoinError: It is another user's.
    """
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(found)
    if user != os.geteuid():
        raise JoinError(f"the process at the other end is of user {user}, this one of user {os.geteuid()}")
    return int(process)
