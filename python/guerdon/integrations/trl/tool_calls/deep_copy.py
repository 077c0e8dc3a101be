"""Snapshots of environments: what a reward function gets in place of an environment that is used again.

A trainer resets an environment for its next sample as soon as it can. A snapshot is the environment as its completion
left it.

- S-1  A later reset or step of the environment changes nothing in its snapshot: it is a deep copy, and of the class that
       the user wrote, unless a ``__deepcopy__`` of theirs gives another.
- S-2  What can't be copied is told by name, with what to define; only those are told who look at it.
- S-3  An environment that an abandoned call may still change has no snapshot: looking at it says which call.
"""

from __future__ import annotations

import copy
from typing import NoReturn

from guerdon._worker.invoke.reasons import reason_of
from guerdon.errors import SnapshotError

__all__ = ["PLAIN", "Unavailable", "itself", "plain_type", "snapshot"]

PLAIN = "__guerdon_plain__"


class Unavailable:
    """In place of an environment that has no snapshot: whatever is asked of it raises the reason.

    Args:
        environment: What it stands for.
        live: Whether an environment's own reward may be had of the environment itself, because nothing is done with it
            before.
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
        if name.startswith("__") and name.endswith("__"):  # protocols that are tried: it has none of them
            raise AttributeError(name)
        raise SnapshotError(self._guerdon_reason)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise SnapshotError(self._guerdon_reason)

    def __repr__(self) -> str:
        return f"<no snapshot: {self._guerdon_reason}>"


def itself(environment: object) -> object:
    """The environment behind one without a snapshot, where that may be used; else what was given."""
    live = environment._guerdon_live if type(environment) is Unavailable else None
    return environment if live is None else live


def plain_type(environment: object) -> type:
    """The class that the user wrote, of an environment, routed or not, or of its snapshot."""
    kind = environment._guerdon_kind if type(environment) is Unavailable else type(environment)
    plain: type = kind.__dict__.get(PLAIN, kind)
    return plain


def snapshot(environment: object) -> object:
    """A deep copy of an environment, of the class that the user wrote.

    Raises:
        SnapshotError: It holds what can't be copied; the message names it.
    """
    kind = plain_type(environment)
    try:
        copied = copy.deepcopy(environment)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit would end the training without a word
        raise SnapshotError(_uncopied(environment, kind, error)) from error
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
    if type(copied) is not kind and type(copied).__dict__.get(PLAIN) is kind:
        object.__setattr__(copied, "__class__", kind)
    return copied


def _uncopied(environment: object, kind: type, error: BaseException) -> str:
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
