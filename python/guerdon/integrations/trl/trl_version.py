"""Versions of TRL that our own trainers derive from: they override parts of its trainers that no
contract holds still, whereas `reward_funcs` needs only what TRL documents
(docs/compatibility.md)."""

from __future__ import annotations

import re
import warnings
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from guerdon._system.extras import pip_install
from guerdon.errors import GuerdonWarning

DERIVED_FROM: Final = (1, 16)  # what the tests of our trainers run with
_NAME: Final = ".".join(map(str, DERIVED_FROM))
_INSTALL: Final = f"pip install 'trl=={_NAME}.*'."

_INSTEAD: Final = (
    "TRL's own trainers, from 0.18 on, take the same functions: from trl import GRPOTrainer, and pass "
    "reward_funcs=Dispatcher([...]).reward_funcs."
)

# Packages that a trainer of TRL imports and does not bring.
_HTTP_CLIENTS: Final = {"AsyncGRPOTrainer": ("aiohttp", "requests")}

_warned: set[str] = set()  # versions that were warned of; written by `require_trl`


def require_trl(name: str) -> None:
    """Refuses a TRL older than the one our trainers derive from, and warns once of a newer one.

    Raises:
        ImportError: TRL is missing or older, or TRL's asynchronous trainer lacks a package that it
            does not bring.
    """
    try:
        installed = metadata.version("trl")
    except metadata.PackageNotFoundError:
        raise unusable(name, f"needs TRL {_NAME}, and trl is not installed: {_INSTALL}") from None
    found = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    if found < DERIVED_FROM:
        raise unusable(name, f"needs TRL {_NAME}, and trl {installed} is installed: {_INSTALL} {_INSTEAD}")
    if found > DERIVED_FROM and installed not in _warned:
        _warned.add(installed)
        warnings.warn(
            f"guerdon.integrations.trl.{name} derives from the trainers of TRL {_NAME}, and trl {installed} is installed: "
            f"where a part that it overrides has changed, training may fail. If it does, {_INSTALL} {_INSTEAD}",
            GuerdonWarning,
            stacklevel=4,
        )
    missing = [package for package in _HTTP_CLIENTS.get(name, ()) if find_spec(package) is None]
    if missing:
        speaks = f"{' and '.join(missing)}, with which TRL's asynchronous trainer speaks to vLLM"
        raise unusable(name, f"needs {speaks}: {pip_install('trl-async')}")


def advice() -> str:
    """Returns the advice for a TRL without a part that our trainers override."""
    return f"they derive from TRL {_NAME}, and trl {metadata.version('trl')} is installed. {_INSTALL} {_INSTEAD}"


def unusable(name: str, why: str) -> ImportError:
    """The error for a trainer that can't be imported."""
    return ImportError(f"guerdon.integrations.trl.{name} {why}", name="trl")
