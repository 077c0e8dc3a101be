"""Serializing functions for the workers of the process lane.

- A function that a worker can import is sent as a name, any other (``__main__``, closures, lambdas,
  objects) by value.
- Functions that can't be serialized are refused at registration; the error names the failing part
  and the remedy.
- A value is pickled once per registration: what the trainer changes later doesn't reach workers.
- A function over 10 MB is warned about; one over 1 GB is refused.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from guerdon._functions.callables import find_attribute
from guerdon._functions.serialization.function_pickler import dumps
from guerdon._functions.serialization.importable import importable
from guerdon._functions.serialization.pickling_diagnostics import find_largest, find_unpicklable, format_decimal_size
from guerdon._functions.serialization.source_check import Stamp, stamp_of
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import GuerdonWarning, SerializationError

__all__ = ["check_serializable", "serialize", "serialized_target"]

Target = tuple[str, str, str] | tuple[str, bytes]

LARGE: Final = 10_000_000
TOO_LARGE: Final = 1_000_000_000

_WAYS_OUT: Final = (
    "Move the function into a module that workers can import, make the value in setup() of a guerdon.StatefulReward, or"
)
_TO_WORKERS: Final = 'give lane="thread" to run the function in this process.'
_TO_NODES: Final = "leave node out to run the function in this process."

# One per spec. Written by `serialized_target`, on the thread that makes the dispatcher.
_targets: WeakKeyDictionary[FunctionSpec, Target] = WeakKeyDictionary()
# The module of a function that is sent as a name, and the state of its file at registration.
# Written as `_targets` is.
_stamps: WeakKeyDictionary[FunctionSpec, tuple[str, Stamp]] = WeakKeyDictionary()


def check_serializable(spec: FunctionSpec) -> None:
    """Make sure that a worker or node can load the function; does nothing for one that stays here.

    Raises:
        SerializationError: It can't be pickled, or is too large; the message names the global,
            closure variable or attribute.
    """
    if spec.leaves_process:
        serialized_target(spec)


def serialize(specs: Sequence[FunctionSpec], hidden: Sequence[str] = (), *, for_nodes: bool = False) -> bytes | None:
    """The functions for the zygote to load; None if none of them runs on the process lane.

    Args:
        specs: The functions of one dispatcher.
        hidden: Names of variables of this process that workers don't get, for error messages.
        for_nodes: With those that agents run themselves.

    Returns: A pickle of ``{"sys_path", "main_path", "main_name", "stamps", "hidden",
        "functions"}``. ``main_name`` is the module of ``python -m``, else None; ``stamps`` is the
        state of the source file of each module that is sent as a name. ``functions`` has one entry
        per spec: None for other lanes, else ``{"recipe": …, "target": ("ref", module, qualname) |
        ("value", pickle)}``.

    Raises:
        SerializationError: As `check_serializable`.
    """
    sent = {spec for spec in specs if spec.in_workers or (for_nodes and spec.leaves_process)}
    if not sent:
        return None
    functions = [{"recipe": s.recipe(), "target": serialized_target(s)} if s in sent else None for s in specs]
    return pickle.dumps(
        {
            "sys_path": [os.path.abspath(entry) for entry in sys.path],
            "main_path": _main_path(),
            "main_name": getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None),
            "stamps": dict(_stamps[spec] for spec in specs if spec in _stamps),
            "hidden": list(hidden),
            "functions": functions,
        },
        protocol=pickle.HIGHEST_PROTOCOL,
    )


def serialized_target(spec: FunctionSpec) -> Target:
    """A function as workers get it: by name, or its pickle."""
    target = _targets.get(spec)
    if target is None:
        target = _reference(spec.target)
        if target is None:
            target = "value", _pickled(spec)
        elif stamp := stamp_of(sys.modules[target[1]]):
            _stamps[spec] = target[1], stamp
        _targets[spec] = target
    return target


def _reference(target: Any) -> tuple[str, str, str] | None:
    """The target's name, if importing it elsewhere gives this function, plain or decorated."""
    module, qualname = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    found = find_attribute(sys.modules.get(module), qualname)
    if found is not target and getattr(found, "__guerdon_target__", None) is not target:
        return None
    return ("ref", module, qualname) if importable(module) else None


def _pickled(spec: FunctionSpec) -> bytes:
    try:
        data = dumps(spec.target)
    except Exception as error:
        unpicklable = find_unpicklable(spec.target, dumps)
        raise SerializationError(
            f"reward function {spec.name!r} can't be sent to {_there(spec)}: {unpicklable} can't be pickled: "
            f"{type(error).__name__}: {error}. {_ways_out(spec)}"
        ) from error
    if len(data) > LARGE:
        _check_size(spec, len(data))
    return data


def _check_size(spec: FunctionSpec, size: int) -> None:
    """Warn about a large function, refuse a too large one."""
    largest = find_largest(spec.target, dumps)
    message = f"reward function {spec.name!r} takes {format_decimal_size(size)} to {_there(spec)}" + (
        f", most of it {largest}" if largest else ""
    )
    if size > TOO_LARGE:
        raise SerializationError(
            f"{message}; more than {format_decimal_size(TOO_LARGE)} are refused. {_ways_out(spec)}"
        )
    warnings.warn(f"{message}. {_ways_out(spec)}", GuerdonWarning, stacklevel=2)


def _there(spec: FunctionSpec) -> str:
    return "a worker process" if spec.node is None else "other nodes (node='any')"


def _ways_out(spec: FunctionSpec) -> str:
    return f"{_WAYS_OUT} {_TO_WORKERS if spec.node is None else _TO_NODES}"


def _main_path() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) else None
