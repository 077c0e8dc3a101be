"""Checks that the functions can run on this machine, before any call: a process like a worker loads
them one after another, runs `setup()` and `close()`, and writes a line of JSON for each.

Like `measure`, it leaves no process of user code behind.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from .invoke.awaiter import Awaiter
from .invoke.reasons import reason_of, setup_reason_of
from .loaded_functions import LoadedFunctions, LoadFailure
from .measure import on_functions


def run() -> None:
    """Checks the serialized functions that come on stdin."""
    on_functions(_check)


def _check(functions: LoadedFunctions, results: Any) -> None:
    for index in functions.indexes():
        # Printed before the check, so that a function that ends the process is identified.
        print(json.dumps({"function": index}), file=results, flush=True)
        print(json.dumps({"function": index, "error": _fault(functions, index)}), file=results, flush=True)


def _fault(functions: LoadedFunctions, index: int) -> str | None:
    """Why the function can't run here."""
    call = functions.get(index)
    if isinstance(call, LoadFailure):
        return call.reason
    awaiter = Awaiter(_warn)
    try:
        _finish(awaiter, call.setup())
    except BaseException as error:  # SystemExit too
        return setup_reason_of(error)
    try:
        _finish(awaiter, call.close())
    except BaseException as error:
        return f"close() failed: {reason_of(error)}"
    finally:
        awaiter.close()
    return None


def _finish(awaiter: Awaiter, raw: Any) -> None:
    if hasattr(type(raw), "__await__"):
        awaiter.run(raw)


def _warn(text: str) -> None:
    print(text, file=sys.stderr)
