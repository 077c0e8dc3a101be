"""The connection of this process to a Ray cluster: made when first needed, and then ended with its
last user.

A connection that the program made itself is used and left alone.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
import time
from typing import Final

from guerdon._system.extras import pip_install
from guerdon.errors import RegistrationError

__all__ = ["check_installed", "connect", "disconnect"]

_lock: Final = threading.Lock()
# Clusters of this process that use the connection made here; written under the lock.
_users = 0
_ours = False

_ANSWER_S: Final = 10.0

# The head of a cluster uses gRPC over HTTP/2, which begins with settings on both sides.
_HEAD_BYTES: Final = 9
_SETTINGS: Final = b"\4"
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0" * 5

_NO_CLUSTER: Final = (
    "Start Ray on this machine (`ray start --head`, or `ray start --address=HEAD:6379` to join a cluster), call ray.init() "
    "before the first batch, or give Ray(address=…)."
)


def check_installed() -> None:
    """Refuses a cluster of Ray where Ray is missing.

    Raises:
        RegistrationError: It can't be imported.
    """
    if importlib.util.find_spec("ray") is None:
        raise RegistrationError(f"cluster=guerdon.Ray(…) needs Ray: {pip_install('ray')}, on each node.")


def connect(address: str | None) -> None:
    """Makes sure that this process is connected; each call is to be followed by a `disconnect`.

    Raises:
        RegistrationError: There is no such cluster, or this process is connected to another one.
    """
    global _users, _ours
    check_installed()
    import ray

    with _lock:
        if ray.is_initialized():
            if address not in (None, "auto"):
                _refuse_other(address)
            _users += 1
            return
        named = address or os.environ.get("RAY_ADDRESS") or "auto"
        try:
            _knock(_found() if named == "auto" else named)
            ray.init(address=named, log_to_driver=False)
        except (OSError, RuntimeError, ValueError) as error:
            where = "no Ray cluster was found" if named == "auto" else f"no Ray cluster answers at {named}"
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise RegistrationError(f"cluster=guerdon.Ray(…): {where}: {why}. {_NO_CLUSTER}") from None
        _users, _ours = 1, True


def _found() -> str:
    """The address that Ray uses for "auto"; empty if this version of Ray doesn't expose it.

    Raises:
        OSError: There is no cluster, or more than one.
    """
    try:
        from ray._private.services import canonicalize_bootstrap_address_or_die as found
    except ImportError:
        return ""
    return str(found("auto"))


def _knock(address: str) -> None:
    """Fails soon if nothing listens, or the listener is silent or is not Ray: Ray itself tries for
    a quarter of an hour.

    Raises:
        OSError: With the fault in its message.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    deadline = time.monotonic() + _ANSWER_S
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S) as connection:
        if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):
            return
        connection.sendall(_PREFACE)
        head = b""
        while len(head) < _HEAD_BYTES:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                piece = connection.recv(_HEAD_BYTES - len(head))
            except TimeoutError:
                raise OSError(f"what listens there says nothing for {_ANSWER_S:g} s") from None
            if not piece:
                break
            head += piece
    if head[3:4] != _SETTINGS:
        raise OSError(f"what listens there is no Ray: it answers {head!r}")


def _refuse_other(address: str) -> None:
    import ray

    here = str(ray.get_runtime_context().gcs_address)
    # A host has many names; each cluster has its port.
    if here.rpartition(":")[2] != address.rpartition(":")[2]:
        raise RegistrationError(
            f"Ray(address={address!r}): this process is connected to the cluster at {here} already, and Ray allows one. Leave "
            "address= out, or call ray.init with that address."
        )


def disconnect() -> None:
    """One user less; the last one ends a connection that was made here."""
    global _users, _ours
    import ray

    with _lock:
        _users -= 1
        if _users == 0 and _ours:
            _ours = False
            ray.shutdown()
