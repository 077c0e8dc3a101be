"""Sentences for Ray's exceptions when an agent can't be reached, to follow "node X was lost:"."""

from __future__ import annotations

from guerdon.errors import GuerdonError

__all__ = ["is_death", "is_gone", "is_preempted", "is_refusal", "reason_of"]

_WORDS = {
    "ActorDiedError": "its agent died",
    "ActorUnavailableError": "its agent can't be reached",
    "ActorUnschedulableError": "Ray can't place its agent",
    "ActorPlacementGroupRemoved": "Ray can't place its agent",
    "GetTimeoutError": "its agent does not answer",
    "NodeDiedError": "the node died",
    "ObjectLostError": "a message was lost",
    "ObjectStoreFullError": "the object store is full",
    "OutOfDiskError": "the object store is full, and its disk too",
    "OutOfMemoryError": "Ray ended its agent for want of memory",
    "OwnerDiedError": "its agent died",
    "PendingCallsLimitExceeded": "its agent does not take any more",
    "RaySystemError": "Ray failed",
    "RuntimeEnvSetupError": "its runtime environment could not be made",
    "WorkerCrashedError": "its agent crashed",
}
_LONGEST = 300


def reason_of(error: BaseException) -> str:
    """The reason, one line."""
    name = type(error).__name__
    # An exception in the agent itself comes as a class of Ray's made for it.
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return _shortened(f"its agent failed: {type(cause).__name__}: {cause}")
    if isinstance(error, ConnectionError):
        return _shortened(str(error))
    known = next((_WORDS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _WORDS), None)
    # The long message for an unreachable actor contains nothing else.
    details = "" if name in ("ActorUnavailableError", "GetTimeoutError") else _details(str(error))
    text = f"{known or 'Ray failed'} ({name}{': ' + details if details else ''})"
    return _shortened("preempted: " + text if is_preempted(error) else text)


def is_preempted(error: BaseException) -> bool:
    """Returns whether Ray reports that the node was taken away on purpose: no call is the cause
    then."""
    return bool(getattr(error, "preempted", False))


def is_death(error: BaseException) -> bool:
    """Returns whether Ray reports that the actor is gone, or is being restarted."""
    return any(kind.__name__ == "RayActorError" for kind in type(error).__mro__)


def is_refusal(error: BaseException) -> bool:
    """Returns whether the functions can't run there: the agent reports that, or its first steps
    raise."""
    return isinstance(getattr(error, "cause", None), GuerdonError) or getattr(error, "actor_init_failed", False)


def is_gone(error: BaseException) -> bool:
    """Returns whether the node is gone, or its agent."""
    return any(kind.__name__ in ("RayActorError", "ActorUnschedulableError") for kind in type(error).__mro__)


def _details(text: str) -> str:
    """The line of Ray's message with the reason; the other lines identify the actor."""
    lines = [line.strip() for line in text.split("\n")]
    telling = [
        line for line in lines if line and not line.startswith(("class_name", "actor_id", "pid", "namespace", "ip"))
    ]
    for line in telling:
        for start in ("The actor is dead because", "The actor died because", "Worker exit type", "Worker exit detail"):
            if line.startswith(start):
                return line
    return telling[-1] if telling else ""


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
