"""Functions and settings of an engine elsewhere, as bytes for its agent.

- The same functions with the same options give the same digest, whatever rank or machine they come
  from: an agent that has them needs them no second time.
- Functions keep their places in the list. Those that stay with the driver are names there.
- It is a pickle: agents and drivers trust each other, as the processes of one program do.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guerdon._functions.spec import FunctionSpec

if TYPE_CHECKING:
    from guerdon._lanes.recycling import Recycle

__all__ = ["EngineContent", "EngineSetup", "configs_of", "pack", "unpack"]

_PYTHON: Final = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"


class EngineSetup(NamedTuple):
    """The packed form: the digest of the functions, and all that an agent needs."""

    digest: bytes
    data: bytes


class EngineContent(NamedTuple):
    """The unpacked form."""

    digest: bytes
    version: str
    python: str
    host: str
    functions: list[dict[str, Any]]
    """The settings of each function for the lanes of an agent."""
    serialized: bytes | None
    """The result of `guerdon._functions.serialization.serialized_functions.serialize`."""
    worker_env: dict[str, str | None]
    recycle: tuple[int | None, float | None, int | None]


def pack(
    specs: Sequence[FunctionSpec],
    worker_env: Mapping[str, str | None],
    recycle: Recycle | None,
    serialized: bytes | None,
) -> EngineSetup:
    """Packs the functions and settings for an agent.

    Args:
        specs: All functions of the engine, in order.
        worker_env: Variables that the dispatcher sets for all workers, or leaves out (None).
        recycle: When workers are replaced.
        serialized: The functions that run in workers, and those that run in agents.
    """
    from guerdon import __version__

    functions = [_function(spec) for spec in specs]
    bounds = (None, None, None) if recycle is None else (recycle.calls, recycle.age, recycle.rss_bytes)
    contents = [_content(spec) for spec in specs]
    all_parts = (__version__, _PYTHON, functions, contents, _paths(serialized), sorted(worker_env.items()), bounds)
    digest = hashlib.blake2b(repr(all_parts).encode("utf-8", "surrogatepass"), digest_size=32).digest()
    host, env = socket.gethostname(), dict(worker_env)
    packed = EngineContent(digest, __version__, _PYTHON, host, functions, serialized, env, bounds)
    return EngineSetup(digest, pickle.dumps(tuple(packed), protocol=pickle.HIGHEST_PROTOCOL))


def unpack(data: bytes) -> EngineContent:
    """Returns the content of packed bytes."""
    return EngineContent(*pickle.loads(data))


def this_python() -> str:
    """The interpreter, as functions that are sent by value need it."""
    return _PYTHON


# Settings of a function that its driver alone uses.
_OF_DRIVERS: Final = {
    **dict.fromkeys(
        ("total_timeout", "limit", "run_if", "cache", "http", "compound", "compose", "member_of", "kernel")
    ),
    "retries": 0,
    "on_failure": "nan",
    "pure": False,
    "has_fallback": False,
    "second_columns": (),
    "anywhere": False,
}


def configs_of(content: EngineContent) -> list[dict[str, Any]]:
    """The functions for the engine of an agent."""
    return [{**_OF_DRIVERS, **settings} for settings in content.functions]


def _function(spec: FunctionSpec) -> dict[str, Any]:
    """Returns the settings of a function for an agent's lanes; the rest is the driver's."""
    settings = spec.lane_settings()
    if not spec.leaves_process:
        # It only holds its place in the list.
        settings |= {"lane": "thread", "shape": "sample", "loop": None, "pinned": False, "finish": False}
        return {**settings, "concurrency": None, "gather": None}
    return {
        **settings,
        # It has the whole of everything that all ranks share by default: it serves all of them.
        "concurrency": spec.concurrency if spec.node is None else spec.concurrency_of(1),
        "gather": None if spec.batch_size is None else (spec.batch_size, 0.0, False),
    }


def _content(spec: FunctionSpec) -> bytes | None:
    """Returns a hash of a shipped function's behaviour: a pickle of the same function has another
    order of sets in each process, and other names for classes."""
    from guerdon._functions.cache.python_code import PythonCode, UnknownPart
    from guerdon._functions.serialization.serialized_functions import serialized_target

    if not spec.leaves_process:
        return None
    kind, *target = serialized_target(spec)
    content = repr((kind, target, repr(spec.recipe()))).encode("utf-8", "surrogatepass")
    if kind == "value":
        code = PythonCode()
        try:
            code.add((spec.target, repr(spec.recipe())), "")
            return code.digest()
        except UnknownPart:
            pass  # the pickle, then
    return hashlib.blake2b(content, digest_size=32).digest()


def _paths(serialized: bytes | None) -> tuple[object, ...]:
    """Returns the folders in which workers find modules."""
    if serialized is None:
        return ()
    loaded = pickle.loads(serialized)
    return loaded["sys_path"], loaded["main_path"], loaded["main_name"], sorted(loaded["stamps"].items())
