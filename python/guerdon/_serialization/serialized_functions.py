"""Sending functions to the workers of the process lane.

- S-1  A function that a worker can import travels as a name, any other (``__main__``, closures, lambdas, objects) by
       value.
- S-2  What can't travel is refused at registration, with what is to blame and the ways out; nothing is found out at the
       first batch.
- S-3  A value is pickled once per registration. Workers get it as it was then: what the trainer changes later doesn't
       reach them.
- S-4  What is large is said: over 10 MB in a warning, over 1 GB it is refused.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from guerdon._registration.spec import FunctionSpec
from guerdon._serialization.function_pickler import dumps
from guerdon._serialization.importable import find_attribute, importable
from guerdon._serialization.pickling_diagnostics import find_culprit, find_heaviest, shown_size
from guerdon._serialization.source_check import Stamp, stamp_of
from guerdon.errors import GuerdonWarning, SerializationError

__all__ = ["check_shippable", "shipment"]

Parcel = tuple[str, str, str] | tuple[str, bytes]

LARGE: Final = 10_000_000
TOO_LARGE: Final = 1_000_000_000

_WAYS_OUT: Final = (
    "Move the function into a module that workers can import, make the value in setup() of a guerdon.StatefulReward, or give "
    'lane="thread" to run the function in this process.'
)

# One parcel per spec, written by `_parcel` (S-3), on the thread that makes the dispatcher whose spec it is.
_parcels: WeakKeyDictionary[FunctionSpec, Parcel] = WeakKeyDictionary()


# The module of a function that is sent as a name, and how its file was at registration; written as `_parcels` is.
_stamps: WeakKeyDictionary[FunctionSpec, tuple[str, Stamp]] = WeakKeyDictionary()


def check_shippable(spec: FunctionSpec) -> None:
    """Make sure that a worker can get the function; does nothing for other lanes.

    Raises:
        SerializationError: It can't be pickled, or is too large; the message names the global, closure variable or
            attribute.
    """
    if spec.lane == "process":
        _parcel(spec)


def shipment(specs: Sequence[FunctionSpec], hidden: Sequence[str] = ()) -> bytes | None:
    """What the zygote gets to load the functions; None if none of them runs on the process lane.

    Args:
        specs: The functions of one dispatcher.
        hidden: Names of variables of this process that workers don't get, so that a function that misses one can be told.

    Returns:
        A pickle of ``{"sys_path", "main_path", "main_name", "hash_seed", "stamps", "hidden", "functions"}``. ``main_name`` is
        the module that ``python -m`` was given, else None; ``stamps`` says how the source file of each module that is
        sent as a name was. ``functions`` has one entry per spec: None for other lanes, else
        ``{"recipe": …, "target": ("ref", module, qualname) | ("value", pickle)}``.

    Raises:
        SerializationError: As `check_shippable`, for specs that it hasn't seen.
    """
    if all(spec.lane != "process" for spec in specs):
        return None
    functions = [{"recipe": s.recipe(), "target": _parcel(s)} if s.lane == "process" else None for s in specs]
    return pickle.dumps(
        {
            "sys_path": [os.path.abspath(entry) for entry in sys.path],
            "main_path": _main_path(),
            "main_name": getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None),
            "hash_seed": os.environ.get("PYTHONHASHSEED"),
            "stamps": dict(_stamps[spec] for spec in specs if spec in _stamps),
            "hidden": list(hidden),
            "functions": functions,
        },
        protocol=pickle.HIGHEST_PROTOCOL,
    )


def _parcel(spec: FunctionSpec) -> Parcel:
    parcel = _parcels.get(spec)
    if parcel is None:
        parcel = _reference(spec.target)
        if parcel is None:
            parcel = "value", _pickled(spec)
        elif stamp := stamp_of(sys.modules[parcel[1]]):
            _stamps[spec] = parcel[1], stamp
        _parcels[spec] = parcel
    return parcel


def _reference(target: Any) -> tuple[str, str, str] | None:
    """The target's name, if importing it elsewhere gives this very function, plain or decorated (S-1)."""
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
        culprit = find_culprit(spec.target, dumps)
        raise SerializationError(
            f"reward function {spec.name!r} can't be sent to a worker process: {culprit} can't be pickled: "
            f"{type(error).__name__}: {error}. {_WAYS_OUT}"
        ) from error
    if len(data) > LARGE:
        _weigh(spec, len(data))
    return data


def _weigh(spec: FunctionSpec, size: int) -> None:
    """Say that a function is large (S-4)."""
    heaviest = find_heaviest(spec.target, dumps)
    message = f"reward function {spec.name!r} takes {shown_size(size)} to a worker process" + (
        f", most of it {heaviest}" if heaviest else ""
    )
    if size > TOO_LARGE:
        raise SerializationError(f"{message}; more than {shown_size(TOO_LARGE)} are refused. {_WAYS_OUT}")
    warnings.warn(f"{message}. {_WAYS_OUT}", GuerdonWarning, stacklevel=2)


def _main_path() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) else None
