"""A deep copy of an environment, which a reward function gets in place of the live one.

A trainer resets an environment for its next sample as soon as it can; the copy stays as its
completion left it, of the class that the user wrote. An environment that can't be copied, or that
an abandoned call may still change, has an `UnavailableSnapshot`: using that raises the reason.
"""

from __future__ import annotations

import copy
from typing import NoReturn

from guerdon._worker.invoke.reasons import reason_of
from guerdon.errors import SnapshotError

__all__ = ["USER_CLASS", "UnavailableSnapshot", "live_environment", "snapshot", "user_class"]

USER_CLASS = "__guerdon_plain__"


class UnavailableSnapshot:
    """In place of an environment that has no snapshot: every attribute raises the reason.

    Args:
        environment: What it stands for.
        live: Whether ``get_reward`` may be called on the environment itself, because nothing else
            is done with it before.
    """

    __slots__ = ("_guerdon_kind", "_guerdon_live", "_guerdon_reason")
    _guerdon_kind: type
    _guerdon_live: object
    _guerdon_reason: str

    def __init__(self, reason: str, environment: object, *, live: bool = False) -> None:
        object.__setattr__(self, "_guerdon_reason", reason)
        object.__setattr__(self, "_guerdon_kind", type(environment))
        object.__setattr__(self, "_guerdon_live", environment if live else None)

    def __getattr__(self, name: str) -> NoReturn:
        # Protocols that Python or a library tries
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        raise SnapshotError(self._guerdon_reason)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise SnapshotError(self._guerdon_reason)

    def __repr__(self) -> str:
        return f"<no snapshot: {self._guerdon_reason}>"


def live_environment(environment: object) -> object:
    """The environment behind an `UnavailableSnapshot`, if it may be used; else the given one."""
    live = environment._guerdon_live if type(environment) is UnavailableSnapshot else None
    return environment if live is None else live


def user_class(environment: object) -> type:
    """The class that the user wrote, of an environment or of its snapshot."""
    kind = environment._guerdon_kind if type(environment) is UnavailableSnapshot else type(environment)
    plain: type = kind.__dict__.get(USER_CLASS, kind)
    return plain


def snapshot(environment: object) -> object:
    """A deep copy of an environment, of the class that the user wrote.

    Raises:
        SnapshotError: It holds what can't be copied; the message names it.
    """
    kind = user_class(environment)
    try:
        copied = copy.deepcopy(environment)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit would end the training silently
        raise SnapshotError(_copy_failed(environment, kind, error)) from error
    if copied is environment:
        raise SnapshotError(
            f"the environment {kind.__qualname__} can't be copied for the reward functions that ask for it: its "
            "__deepcopy__ gives the environment itself, which the next reset() changes. Return a new one."
        )
    if copied is None:
        raise SnapshotError(
            f"the environment {kind.__qualname__} can't be copied for the reward functions that ask for it: its "
            "__deepcopy__ gives None. Return what rewards need of it."
        )
    if type(copied) is not kind and type(copied).__dict__.get(USER_CLASS) is kind:
        object.__setattr__(copied, "__class__", kind)
    return copied


def _copy_failed(environment: object, kind: type, error: BaseException) -> str:
    held = getattr(environment, "__dict__", {})
    for name, value in held.items():
        try:
            copy.deepcopy(value)
        except BaseException:
            what = f"its attribute {name!r} is a {type(value).__qualname__}"
            break
    else:
        what = "copy.deepcopy fails"
    return (
        f"the environment {kind.__qualname__} can't be copied for the reward functions that ask for it: {what} "
        f"({reason_of(error)}). Define {kind.__qualname__}.__deepcopy__(self, memo) to return what "
        "rewards need of it."
    )
