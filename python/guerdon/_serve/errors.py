"""Reasons why a request is not answered with rewards, and why there is no server."""

from __future__ import annotations

from guerdon.errors import GuerdonError


class ServerOptionError(GuerdonError, ValueError):
    """The server can't be started so; the message says what to do."""


class RequestError(Exception):
    """A request that is refused, or that failed.

    Args:
        status: Of HTTP.
        reason: For the client: what happened, and what to do.
        retry_after: Seconds after which it is worth another try; None where it is not.
    """

    def __init__(self, status: int, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class ClientGoneError(Exception):
    """The client has closed its connection: nobody waits for an answer."""
