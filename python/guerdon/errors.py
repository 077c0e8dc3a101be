"""The errors of Guerdon: one tree, so that ``except GuerdonError`` catches all of them.

- Every error that the package raises on purpose is a `GuerdonError`, and the builtin one would
  expect.
- A message contains the event, the function and sample, and the remedy.
- Errors survive pickling with their attributes: they cross process boundaries under DDP.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from guerdon._system.warning import GuerdonWarning

if TYPE_CHECKING:
    from guerdon.results import RewardBatch
    from guerdon.results.status import Status

__all__ = [
    "ClosedError",
    "DataError",
    "GuerdonError",
    "GuerdonWarning",
    "MainGuardError",
    "QuietRewardWarning",
    "RegistrationError",
    "RewardFailureError",
    "SerializationError",
    "ToolError",
    "option_names",
    "unknown_option",
    "with_known_options",
]


_LONGEST: Final = 4000
# Files of this package, and methods that dataclasses make.
_OWN: Final = (os.path.dirname(__file__) + os.sep, "<string>")

P = ParamSpec("P")
R = TypeVar("R")

_Maker = TypeVar("_Maker", bound=Callable[..., Any])


class GuerdonError(Exception):
    """Base of all errors of Guerdon."""


def raised_at_the_call(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates what users call: a `GuerdonError` comes without the package's own frames below it.

    If there are frames of other code, all frames are kept.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except GuerdonError as error:
            frames = error.__traceback__
            while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN):
                frames = frames.tb_next
            if frames is None:
                error.__traceback__ = None
            raise

    return call


class RegistrationError(GuerdonError, ValueError):
    """A reward function, an option of it or the list of functions can't work; raised before
    anything runs."""

    def __init__(self, *args: object) -> None:
        # A message shows the option that is wrong, which may be a prompt of megabytes.
        super().__init__(*(_shortened(arg) if isinstance(arg, str) else arg for arg in args))


def with_known_options(
    maker: _Maker,
    *,
    others: Callable[..., Any] | None = None,
    values: Iterable[type] = (),
    deprecated: Mapping[str, Callable[[dict[str, Any]], None]] = MappingProxyType({}),
) -> _Maker:
    """Make a public function or class refuse unknown options and name the nearest known one;
    options of `others` are known too.

    Args:
        values: Classes that hold options, each under its own name: ``limit=Limit(…)``.
        deprecated: Options of an earlier version, each with the function that warns and puts what
            replaces it into the options.
    """
    called = cast(Any, maker).__init__ if isinstance(maker, type) else maker
    names = (*option_names(called), *(() if others is None else option_names(others)))
    earlier = deprecated or getattr(others, "__deprecated_options__", {})

    @functools.wraps(called)
    def checked(*args: Any, **options: Any) -> Any:
        for option in tuple(options):
            if option in deprecated:
                deprecated[option](options)
            elif option not in names and option not in earlier:
                raise unknown_option(maker.__name__, option, names, values)
        return called(*args, **options)

    if not isinstance(maker, type):
        vars(checked)["__deprecated_options__"] = deprecated
        return cast(_Maker, checked)
    cast(Any, maker).__init__ = raised_at_the_call(checked)
    return maker


def option_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = getattr(function, "__wrapped__", function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def unknown_option(maker: str, option: str, known: Iterable[str], values: Iterable[type] = ()) -> RegistrationError:
    """Returns the error for an unknown option."""
    import dataclasses
    import difflib

    for value in values:
        held = dataclasses.fields(cast(Any, value))
        if any(option == one.name for one in held):
            first = "…, " if held[0].default is dataclasses.MISSING else ""
            into = f"{value.__name__.lower()}=guerdon.{value.__name__}({first}{option}=…)"
            return RegistrationError(f"{maker}() has no option {option!r}: give it as {into}.")
    close = difflib.get_close_matches(option, [name for name in known if name != "self"], n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return RegistrationError(f"{maker}() has no option {option!r}{meant}")


def _shortened(message: str) -> str:
    """Shortens a message to its beginning and its end, which contains the remedy."""
    if len(message) <= _LONGEST:
        return message
    return f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"


class SerializationError(RegistrationError):
    """A function of the process lane can't be sent to a worker; the message names the part to
    blame."""


class DataError(GuerdonError, ValueError):
    """A batch can't be scored: a missing column, a wrong length, an incomplete group. No call was
    made."""


class ClosedError(GuerdonError, RuntimeError):
    """The dispatcher was closed, or samples were added to a batch that takes no more."""


class MainGuardError(GuerdonError, RuntimeError):
    """A batch was submitted while a child process imports the program (multiprocessing), or
    while a worker imports the module of a reward function."""


class QuietRewardWarning(GuerdonWarning):
    """A reward function always abstains, or gives every sample the same reward, or gets messages
    for a parameter annotated as ``str``. It is reported once and never raised, whatever the
    filters."""


class RewardFailureError(GuerdonError):
    """More of one function's samples failed than its policy allows, or a function with
    ``on_failure="raise"`` failed.

    Attributes:
        result: The whole batch with all cells and failures; None where only one sample, or another
            process, is meant.
    """

    result: RewardBatch | None

    def __init__(self, message: str, result: RewardBatch | None = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[RewardFailureError], tuple[str, RewardBatch | None]]:
        return type(self), (str(self), self.result)


class ToolError(GuerdonError, RuntimeError):
    """A tool, or a method of an environment, has no result: it timed out, the process died, the
    call was cancelled, or the exception can't be sent between processes. The model sees the
    message.

    Attributes:
        status: `Status.TIMEOUT`, `CRASHED`, `CANCELLED` or `ERROR`.
    """

    status: Status

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[ToolError], tuple[str, Status]]:
        return type(self), (str(self), self.status)
