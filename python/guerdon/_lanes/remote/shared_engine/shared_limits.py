"""Limits of functions whose ranks share an engine: one for all ranks of the host.

- Every function that takes permits is meant, judges and the members of panels too: a rate, or calls
  in flight of a function that stays in its rank. A limit that all ranks share by itself is left as
  it is: a limit with a key, and the calls at a time of functions that run in the shared engine.
- Ranks find each other's limit by the functions' names and the numbers: its endpoints and request,
  or its module and name. Costs of functions are not concerned.
- If the file of a limit can't be made, each rank has its own, with one warning.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from guerdon import limits
from guerdon._functions.function_list import change_limits
from guerdon._functions.spec import FunctionSpec
from guerdon._system.warning import warn
from guerdon.limits import DefaultLimit, Limit, SharedLimit

__all__ = ["share_limits"]


def share_limits(specs: Iterable[FunctionSpec]) -> tuple[FunctionSpec, ...]:
    """The functions, with limits that all ranks of the host share."""
    specs = tuple(specs)
    shared = tuple(change_limits(specs, _shared))
    if any(new is not old for new, old in zip(shared, specs, strict=True)) and (problem := _problem()):
        warn(
            f"cluster='host': the ranks of this host can't share limits, and each has its own: {problem}. Name a "
            f"folder in which files can be made: {limits.FOLDER}=…."
        )
        return specs
    return shared


def _shared(spec: FunctionSpec) -> Limit | None:
    limit = spec.policy.limit
    if limit is None or isinstance(limit, DefaultLimit | SharedLimit) or limits.native(limit, spec.lane) is None:
        return limit
    if limit.key is not None:
        return limit
    given: dict[str, Any] = {one.name: getattr(limit, one.name) for one in fields(Limit)}
    return SharedLimit(**given, identity=f"{_name(spec)} of this host, {_digest(spec, limit)}")


def _name(spec: FunctionSpec) -> str:
    """The name by which it was made, also of a member."""
    return spec.name if spec.member_of is None else spec.name.removeprefix(f"{spec.member_of}/")


def _digest(spec: FunctionSpec, limit: Limit) -> str:
    """The same in each rank."""
    plans = (spec.http,) if spec.http is not None else ()
    called = [(plan.fleet.endpoints, plan.api, plan.body, plan.secret) for plan in plans]
    target = getattr(spec.target, "__func__", spec.target)
    place = (getattr(target, "__module__", ""), getattr(target, "__qualname__", type(target).__qualname__))
    parts = repr((_name(spec), called or place, limit.rpm, limit.tpm, limit.concurrency))
    return hashlib.blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _problem() -> str | None:
    """Why no file of a limit can be made; None if one can."""
    folder = limits.folder()
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(dir=folder)
    except OSError as error:
        return str(error)
    os.close(descriptor)
    os.unlink(path)
    return None
