"""The errors of Guerdon: one tree, so that ``except GuerdonError`` catches all of them and nothing else.

- E-1  Every error that the package raises on purpose is a `GuerdonError`; each is also the builtin that a reader would
       expect.
- E-2  A message says what happened, to which function and sample, and what to do.
- E-3  Errors survive pickling with what they carry: they cross process borders under DDP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guerdon.results import RewardBatch
    from guerdon.status import Status

__all__ = [
    "ClosedError",
    "DataError",
    "GuerdonError",
    "GuerdonWarning",
    "MainGuardError",
    "RegistrationError",
    "RewardFailureError",
    "SerializationError",
    "SnapshotError",
    "ToolError",
    "VLLMServerError",
]


class GuerdonError(Exception):
    """Base of all errors of Guerdon."""


class RegistrationError(GuerdonError, ValueError):
    """A reward function, an option of it or the list of functions can't work; raised before anything runs."""


class SerializationError(RegistrationError):
    """A function of the process lane can't be sent to a worker; the message says which part of it is to blame."""


class DataError(GuerdonError, ValueError):
    """A batch that can't be scored: a missing column, a wrong length, a group that isn't whole. No call was made."""


class ClosedError(GuerdonError, RuntimeError):
    """The dispatcher was closed, or a batch that takes no more samples was given some."""


class MainGuardError(GuerdonError, RuntimeError):
    """A batch was given while multiprocessing imports the program for a child, once more and for another purpose."""


class VLLMServerError(GuerdonError, ConnectionError):
    """A vLLM server could not be asked, or not be given the policy's weights, in the time and tries that there were."""


class GuerdonWarning(RuntimeWarning):
    """Something works, but not as well as it could, or not as one may think. Filter on it to silence Guerdon."""


class RewardFailureError(GuerdonError):
    """More of one function's samples failed than its policy allows, or a function with ``on_failure="raise"`` failed.

    Attributes:
        result: The whole batch, true cells and failures, or None where the batch stays in another process.
    """

    result: RewardBatch | None

    def __init__(self, message: str, result: RewardBatch | None = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[RewardFailureError], tuple[str, RewardBatch | None]]:
        return type(self), (str(self), self.result)


class SnapshotError(GuerdonError, TypeError):
    """A reward function asked for an environment that can't be copied, or that a call which can't be stopped still
    changes; the message says what to define."""


class ToolError(GuerdonError, RuntimeError):
    """A tool, or a method of an environment, that came to no result: its time was over, its process died, it was
    cancelled; or its own exception can't be sent between processes. The message is what the model gets to see.

    Attributes:
        status: `Status.TIMEOUT`, `CRASHED`, `CANCELLED` or `ERROR`.
    """

    status: Status

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[ToolError], tuple[str, Status]]:
        return type(self), (str(self), self.status)
