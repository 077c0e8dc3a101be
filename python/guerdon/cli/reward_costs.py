"""``guerdon info FILE``: where its functions run, and what loading them costs a worker.

- The modules are imported by a process like those of workers, in their environment; no function is
  called, and `setup()` does not run.
- An import that hangs or ends the process is reported with the function that caused it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from guerdon._functions.spec import with_members
from guerdon._system.units import bytes_text

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

__all__ = ["reward_costs", "text"]


def reward_costs(rewards: str) -> dict[str, Any]:
    """Facts about the rewards that `rewards` names, plain values.

    Raises:
        UsageError: There are no such rewards.
    """
    from guerdon.profile.load_rewards import load

    with load(rewards) as dispatcher:
        # The members of votes and panels are listed in their place: they are what workers load.
        functions: dict[int, dict[str, Any]] = {
            index: {"name": spec.name, "lane": spec.lane, "start": None}
            for index, spec in enumerate(with_members(dispatcher._specs))
            if spec.composition is None
        }
        worker = _measured(dispatcher, functions) if sys.platform == "linux" else None
    return {"rewards": rewards, "functions": list(functions.values()), "worker": worker}


def _measured(dispatcher: Dispatcher, functions: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
    """Adds what loading each function costs; what a worker is, None without any."""
    setup = dispatcher._engine.worker_setup()
    if setup.functions is None:
        return None
    patience = max(spec.policy.setup_timeout for spec in dispatcher._specs)
    process = subprocess.Popen(
        [setup.python, os.path.join(setup.folder, "_zygote.py"), "measure", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(setup.environment),
        start_new_session=True,
    )
    ended = "ended the process"
    try:
        output, _ = process.communicate(setup.functions, timeout=patience)
    except subprocess.TimeoutExpired:
        ended = f"did not end within its setup_timeout of {patience:g} s"
        process.terminate()
        output, _ = process.communicate()
    except BaseException:  # Ctrl-C
        process.terminate()
        process.wait()
        raise
    worker = None
    for line in output.splitlines():
        found = json.loads(line)
        index = found.pop("function", None)
        if index is None:
            worker = found
        else:
            functions[index].update(found)
    ours = [each for each in functions.values() if each["lane"] == "process"]
    for each in ours:
        each["start"] = worker["start"] if worker is not None else None
    if worker is None:
        guilty = next((each for each in ours if "error" not in each), ours[-1])
        guilty["error"] = f"importing its module {ended}"
    return worker


def text(known: dict[str, Any]) -> str:
    """The facts as a table, and what a worker costs."""
    rows = [("function", "lane", "workers", "import", "memory", "left behind")]
    for each in known["functions"]:
        measured = "import_s" in each
        rows.append(
            (
                each["name"],
                each["lane"],
                {"fork": "forked", "load": "load it", None: "-"}[each["start"]],
                f"{each['import_s']:.2f} s" if measured else "-",
                bytes_text(each["import_bytes"]) if measured else "-",
                each.get("error") or ", ".join(each.get("threads", []) + each.get("devices", [])) or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if known["worker"] is not None:
        lines += ["", _worker_text(known["worker"])]
    return "\n".join(lines)


def _worker_text(worker: dict[str, Any]) -> str:
    if worker["start"] == "fork":
        own, shared = bytes_text(worker["memory_bytes"]), bytes_text(worker["loaded_bytes"])
        return f"A worker is forked with the functions loaded: {own} of its own, beside {shared} that all share."
    left = ", ".join(worker["threads"] + worker["devices"])
    return (
        f"Each worker loads the functions itself, {bytes_text(worker['memory_bytes'])} each, because of {left}: a process "
        "with threads or an accelerator in use can't be forked. Move what makes them into the function or setup()."
    )
