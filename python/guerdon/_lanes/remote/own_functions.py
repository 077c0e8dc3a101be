"""Functions that an agent runs itself, on its threads and event loops (``node="any"``)."""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

from guerdon._functions.options import Node
from guerdon._functions.policy import Policy
from guerdon._functions.spec import FunctionSpec, Wants
from guerdon._worker.invoke.reasons import reason_of
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._lanes.remote.engine_setup import EngineContent

__all__ = ["load"]

_ANY: Node = "any"


def load(content: EngineContent, serialized: bytes) -> list[FunctionSpec]:
    """Returns the specs of all functions for the agent's lanes, with its own functions loaded.

    Modules are found where the driver finds them, and where this process does.

    Args:
        content: What the driver sent.
        serialized: Its functions, those of others being None.

    Raises:
        RegistrationError: One can't be loaded here, with its name.
    """
    loaded = pickle.loads(serialized)
    sys.path += [entry for entry in loaded["sys_path"] if entry not in sys.path]
    specs = []
    for config, entry in zip(content.functions, loaded["functions"], strict=True):
        name = config["function"]["name"]
        if entry is None:
            # Its name and place are all that is needed of it.
            specs.append(FunctionSpec(name, None, _elsewhere, "process", "sample", Policy(1.0), Wants()))
            continue
        try:
            target = _target(entry["target"])
        except BaseException as error:  # SystemExit at import too
            if isinstance(error, KeyboardInterrupt):
                raise
            raise RegistrationError(
                f"reward function {name!r} (node='any') could not be loaded in the agent: {reason_of(error)}"
            ) from error
        specs.append(_spec(config, entry["recipe"], target))
    return specs


def _spec(config: dict[str, Any], recipe: dict[str, Any], target: Any) -> FunctionSpec:
    function = config["function"]
    policy, gather = function["policy"], function["gather"]
    spec = FunctionSpec(
        name=function["name"],
        item=target,
        target=target,
        lane=config["lane"],
        shape=function["shape"],
        policy=Policy(policy["timeout"], policy["grace"], setup_timeout=policy["setup_timeout"]),
        wants=Wants(records=tuple(recipe["records"])),
        rowwise=recipe["rowwise"],
        batch_size=None if gather is None else gather["max_size"],
        loop=config["loop"],
        node=_ANY,
        stateful=recipe["stateful"],
    )
    vars(spec)["concurrency"] = policy["concurrency"]
    return spec


def _target(target: tuple[Any, ...]) -> Any:
    if target[0] == "value":
        return pickle.loads(target[1])
    _, module, qualname = target
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return getattr(found, "__guerdon_target__", found)


def _elsewhere() -> None:
    raise AssertionError("this function is not the agent's")
