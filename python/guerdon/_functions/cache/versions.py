"""Version of a function for its cached outcomes: a hash of all that decides it, its values aside.

- The version of a judge: the request's words and options, how the answer is read, votes and panels;
  the model is identified by its name, not by its address. Never a key.
- A reward service or sandbox is identified by its address.
- Options that only affect how calls are made (timeouts, retries, limits, prices) change nothing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

from guerdon._functions.cache.python_code import PythonCode, UnknownPart
from guerdon._functions.cache_folder import CacheFolder
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError

__all__ = ["composite_version", "http_version", "kernel_version", "version_of"]

# One per spec, as it was when its dispatcher was made. Written on the thread that makes it.
_versions: WeakKeyDictionary[FunctionSpec, bytes] = WeakKeyDictionary()


def version_of(spec: FunctionSpec) -> bytes:
    """The version of a function with a cache folder: 32 bytes.

    Raises:
        RegistrationError: It uses something that has no version; the message names it.
    """
    version = _versions.get(spec)
    if version is None:
        version = _versions[spec] = _made_version(spec)
    return version


def _made_version(spec: FunctionSpec) -> bytes:
    if spec.composition is not None:
        return composite_version(spec, lambda called: _version_of_called(called, spec.cache))
    return http_version(spec) if spec.lane == "http" else _python(spec)


def _version_of_called(called: FunctionSpec, cache: CacheFolder | None) -> bytes:
    return http_version(called) if called.lane == "http" else _python(replace(called, cache=cache))


def _python(spec: FunctionSpec) -> bytes:
    assert spec.cache is not None
    code = PythonCode()
    how = (spec.name, spec.cache.version, spec.rowwise, spec.batch_size is not None, list(spec.wants.named))
    code.add(("python", sys.implementation.cache_tag, *how), "")
    if spec.cache.version is not None:
        return code.digest()
    try:
        code.add(spec.target, f"{spec.name!r} itself")
    except UnknownPart as unknown:
        raise RegistrationError(
            f"reward function {spec.name!r}: cache= can't tell when the function has changed: {unknown}. Give cache_version=, a "
            "text that you change with the function, or make that value in setup() of a guerdon.StatefulReward."
        ) from None
    return code.digest()


def http_version(spec: FunctionSpec) -> bytes:
    """The version of a judge or reward service, with or without a cache folder."""
    from guerdon import __version__

    stated = None if spec.cache is None else spec.cache.version
    asked: list[object] = ["http", __version__, spec.name, stated]
    asked += [plan.identity() for plan in spec.plans]
    return hashlib.blake2b(repr(asked).encode("utf-8", "surrogatepass"), digest_size=32).digest()


def composite_version(spec: FunctionSpec, of_member: Callable[[FunctionSpec], object]) -> bytes:
    """The version of a function with members, made of the members' versions."""
    from guerdon import __version__

    assert spec.composition is not None
    stated = None if spec.cache is None else spec.cache.version
    members = [of_member(called) for called in spec.called or spec.composition.members]
    parts = "compose", __version__, spec.name, stated, spec.composition.identity(), spec.wants.required, members
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=32).digest()


def kernel_version(spec: FunctionSpec) -> bytes:
    """The version of a native reward: its options and columns, and this package."""
    from guerdon import __version__

    asked = "native", __version__, spec.name, spec.kernel
    return hashlib.blake2b(repr(asked).encode("utf-8", "surrogatepass"), digest_size=32).digest()
