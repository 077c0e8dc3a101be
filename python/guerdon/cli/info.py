"""``guerdon info [REWARDS]``: the settings in force for a dispatcher made here, and what its
functions cost to load (`reward_costs`)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from itertools import chain
from typing import Any, Final

from guerdon._system.extras import EXTRAS
from guerdon.profile.exit_codes import SUCCESS

__all__ = ["add_to", "facts", "run"]

# Names without the parts for `pip` behind them.
_EXTRAS: Final = {extra: tuple(re.split(r"[^\w-]", one)[0] for one in packages) for extra, packages in EXTRAS.items()}
_PACKAGES: Final = tuple(dict.fromkeys(("numpy", "cloudpickle", "transformers", *chain(*_EXTRAS.values()))))


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info",
        help="show effective settings and versions, and what functions cost a worker",
        description="Show the effective settings and versions; with REWARDS also where each function runs\n"
        "and what loading it costs a worker.",
        epilog="Exit code: 0 success; 2 the command line or the rewards can't be used.",
    )
    parser.add_argument("rewards", metavar="REWARDS", nargs="?", help="file.py, module, or either with :a,b")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Print the facts.

    Raises:
        UsageError: The rewards can't be loaded.
    """
    from guerdon.cli import reward_costs

    costs = reward_costs.reward_costs(options.rewards) if options.rewards is not None else None
    known = facts()
    if options.json:
        print(json.dumps(known if costs is None else {**known, "rewards": costs}, indent=2))
    elif costs is None:
        print(_text(known))
    else:
        print(_text(known), reward_costs.text(costs), sep="\n\n")
    return SUCCESS


def facts() -> dict[str, Any]:
    """Effective settings and versions, plain values. Versions are read without any import."""
    from guerdon import __version__
    from guerdon._functions.policy import LISTS_TIMEOUT, SAMPLE_TIMEOUT
    from guerdon._system import worker_environment
    from guerdon._system.cpu_count import default_workers, usable_cores
    from guerdon._system.launcher import has_launcher, launch_id, ranks_on_host, run_id, world_size

    return {
        "guerdon": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": {"usable": usable_cores(), "machine": os.cpu_count() or 1},
        "ranks": ranks_on_host(),
        "world_size": world_size(),
        "run": run_id() or (launch_id() if has_launcher() else None),
        "workers": default_workers(),
        "lanes": {
            "process": {"available": sys.platform == "linux", "concurrency": default_workers()},
            "code": {"available": sys.platform == "linux", "concurrency": default_workers()},
            "thread": {"available": True, "concurrency": 8},
            "asyncio": {"available": True, "concurrency": 256},
            "http": {"available": True, "concurrency": 256},
            "native": {"available": True, "concurrency": default_workers()},
        },
        "code_isolation": _code_isolation(),
        "timeouts_s": {"sample": SAMPLE_TIMEOUT, "group": LISTS_TIMEOUT, "batch": LISTS_TIMEOUT},
        "worker_environment": {
            "hidden": worker_environment.hidden({}),
            **{name: os.environ.get(name, value) for name, value in worker_environment.DEFAULTS.items()},
        },
        "state_sockets": _state_sockets(),
        "packages": {package: _version(package) for package in _PACKAGES},
    }


def _code_isolation() -> dict[str, str | None]:
    """Returns the isolation of code rewards' programs on this machine, or the reason why there is
    none."""
    from guerdon.errors import RegistrationError
    from guerdon.rewards.code.zygote.fence import FenceSpec
    from guerdon.rewards.code.zygote.fence_probe import probe

    try:
        return {"level": str(probe(FenceSpec())), "problem": None}
    except RegistrationError as error:
        return {"level": None, "problem": str(error)}


def _state_sockets() -> dict[str, str | None]:
    """Returns the folder in which `guerdon top` finds running dispatchers, or the reason why there
    is none."""
    from guerdon._insight.monitor.sockets import NoSocketError, new_socket

    try:
        return {"folder": os.path.dirname(new_socket()), "problem": None}
    except NoSocketError as error:
        return {"folder": None, "problem": str(error)}


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(known: dict[str, Any]) -> str:
    cores, lanes, timeouts = known["cores"], known["lanes"], known["timeouts_s"]
    divisor = f", shared by {known['ranks']} ranks on this host" if known["ranks"] > 1 else ""
    packages = ", ".join(f"{name} {version}" for name, version in known["packages"].items() if version)
    missing = [
        f"{extra} ({', '.join(lacking)})"
        for extra, names in _EXTRAS.items()
        if (lacking := [name for name in names if not known["packages"][name]])
    ]
    lines = [
        ("guerdon", f"{known['guerdon']} on Python {known['python']}, {known['platform']}"),
        ("cores", f"{cores['usable']} usable of {cores['machine']}"),
        ("workers", f"{known['workers']} (usable cores{divisor})"),
    ]
    unnamed = "no name: each process is a run of its own (GUERDON_RUN_ID=<name> names one)"
    lines.append(("run", known["run"] or unnamed))
    for name, lane in lanes.items():
        usable = f"{lane['concurrency']} concurrent calls per function" if lane["available"] else "needs Linux"
        lines.append((f"{name} lane", usable))
    isolation = known["code_isolation"]
    lines.append(("code isolation", isolation["level"] or isolation["problem"]))
    lines.append(("timeouts", f"{timeouts['sample']:g} s per sample, {timeouts['batch']:g} s per group or batch"))
    given = known["worker_environment"]
    threads = ", ".join(f"{name}={value}" for name, value in given.items() if name != "hidden")
    lines.append(("worker env", f"this environment, with {threads}"))
    lines.append(("hidden from workers", ", ".join(given["hidden"]) or "no variable that is set"))
    sockets = known["state_sockets"]
    lines.append(("live state", sockets["folder"] or f"no socket for guerdon top: {sockets['problem']}"))
    lines.append(("packages", packages))
    if missing:
        lines.append(("not installed", ", ".join(missing)))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in lines)
